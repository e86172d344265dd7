//! How long a connection over RDMA takes to make: gpunet's host API beside librdmacm's `rconnect`,
//! to the same listener, in turns.
//!
//! ```text
//! rc_connect listen IP:PORT
//! rc_connect IP:PORT [COUNT]
//! ```

use gpunet_proxy::abi::{Options, TransportKind};
use gpunet_proxy::{Config, embed};
use std::ffi::{CStr, c_int, c_void};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rc = Options::DEFAULT.with_transport(TransportKind::Rc);
    let host = embed(Config::small())?.host()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["listen", addr] => {
            let listener = host.bind(addr.parse()?, rc, 64).await?;
            println!("listening on {}", listener.local_addr()?);
            loop {
                drop(listener.accept().await?);
            }
        }
        [addr, ref rest @ ..] => {
            let to: SocketAddr = addr.parse()?;
            let count = rest.first().map_or(Ok(50), |count| count.parse())?;
            let rsockets = Rsockets::open();
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let start = Instant::now();
                let stream = host.connect(to, rc).await?;
                ours.push(start.elapsed());
                drop(stream);
                if let Some(rsockets) = &rsockets {
                    theirs.push(rsockets.connect(to)?);
                }
            }
            report("gpunet connect", ours);
            report("rconnect", theirs);
            host.close().await;
            Ok(())
        }
        _ => Err("usage: rc_connect [listen] IP:PORT [COUNT]".into()),
    }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    match times[..] {
        [] => println!("{what}: not measured (librdmacm.so.1 is not here)"),
        _ => println!(
            "{what}: {} connections, p50 {:.2} ms, p90 {:.2} ms",
            times.len(),
            times[times.len() / 2].as_secs_f64() * 1e3,
            times[times.len() * 9 / 10].as_secs_f64() * 1e3,
        ),
    }
}

type Rsocket = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;
type Rconnect = unsafe extern "C" fn(c_int, *const libc::sockaddr, libc::socklen_t) -> c_int;
type Rclose = unsafe extern "C" fn(c_int) -> c_int;

/// The three calls of librdmacm that make a connection.
struct Rsockets {
    rsocket: Rsocket,
    rconnect: Rconnect,
    rclose: Rclose,
}

impl Rsockets {
    fn open() -> Option<Self> {
        // SAFETY: loads a library whose initialisers need nothing of the caller; it is never
        // unloaded.
        let library = unsafe { libc::dlopen(c"librdmacm.so.1".as_ptr(), libc::RTLD_NOW) };
        // SAFETY: a handle that is checked first, and a name.
        let symbol = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        if library.is_null() {
            return None;
        }
        let (rsocket, rconnect, rclose) = (symbol(c"rsocket"), symbol(c"rconnect"), symbol(c"rclose"));
        if [rsocket, rconnect, rclose].contains(&std::ptr::null_mut::<c_void>()) {
            return None;
        }
        // SAFETY: rsocket(3)'s signatures, of functions that are there (checked).
        unsafe {
            Some(Self {
                rsocket: std::mem::transmute::<*mut c_void, Rsocket>(rsocket),
                rconnect: std::mem::transmute::<*mut c_void, Rconnect>(rconnect),
                rclose: std::mem::transmute::<*mut c_void, Rclose>(rclose),
            })
        }
    }

    fn connect(&self, to: SocketAddr) -> Fallible<Duration> {
        let address = sockaddr(to);
        let start = Instant::now();
        // SAFETY: plain calls; the address lives until the second returns.
        let (socket, result) = unsafe {
            let socket = (self.rsocket)(libc::AF_INET, libc::SOCK_STREAM, 0);
            let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            (socket, (self.rconnect)(socket, (&raw const address).cast(), length))
        };
        let time = start.elapsed();
        let error = std::io::Error::last_os_error();
        // SAFETY: the socket made above, once.
        unsafe { (self.rclose)(socket) };
        if result == 0 { Ok(time) } else { Err(error.into()) }
    }
}

fn sockaddr(to: SocketAddr) -> libc::sockaddr_in {
    let SocketAddr::V4(to) = to else { panic!("an IPv4 address") };
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
        sin_zero: [0; 8],
    }
}
