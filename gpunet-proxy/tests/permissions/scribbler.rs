//! A program that overwrites all that it can write: its region, and both parts of its arenas.

use crate::daemon::{Running, TempDir, gpunetd, until};
use crate::program::{self, PEER, TCP, addr, small};
use crate::support::process::{say, wait};
use crate::support::rng::Rng;
use crate::support::{Memory, SOLO, pattern};
use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream, Timeout};
use gpunet_proxy::{Attachment, attach};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TIME: Duration = Duration::from_millis(1200);

/// Not a test: what the program does.
pub fn scribble(attachment: &Attachment) {
    let token = attachment.token().expect("a number");
    let mut peer = Stream::connect_with(&SOLO, token.net(), addr(), PEER).expect("connected");
    let mut tcp = Stream::connect_with(&SOLO, token.net(), addr(), TCP).expect("connected");
    for stream in [&mut peer, &mut tcp] {
        stream.send_all(&SOLO, b"hello").expect("sent");
    }
    say("ready");
    wait();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this is Linux");
    let ours = maps.lines().filter(|line| line.contains("/memfd:gpunet") && line.contains(" rw"));
    let range = |line: &str| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    let ranges: Vec<_> = ours.filter_map(range).collect();
    let mut rng = Rng::new(0x1234_5678_9abc_def1);
    let (start, mut passes) = (Instant::now(), 0);
    while start.elapsed() < TIME || passes < 2 {
        for &(from, to) in &ranges {
            // The first megabyte has all words and lines; of the rings now and then a piece.
            let end = if passes == 0 { to } else { to.min(from + (1 << 20)) };
            for at in (from..end).step_by(8) {
                // Small numbers and odd bits, as well as noise.
                let value = match rng.next() % 4 {
                    0 => rng.next() % 70_000,
                    1 => u64::MAX - rng.next() % 3,
                    _ => rng.next(),
                };
                // SAFETY: an aligned word of a writable mapping of this process, which nothing else
                // in it needs any more.
                unsafe { (at as *mut u64).write_volatile(value) };
            }
        }
        passes += 1;
    }
    say(format!("scribbled {} ranges {passes} times", ranges.len()));
    wait();
    std::process::exit(0);
}

/// Echoes between two attachments until told to stop; every byte is checked.
fn pair(server: Net, client: Net, options: Options, stop: &AtomicBool, rounds: &AtomicU64) {
    let home = SockAddr::v4([127, 0, 0, 1], 0);
    let listener = Listener::bind_with(&SOLO, server, home, options, 8).expect("a port");
    let addr = listener.local_addr();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = Stream::connect_with(&SOLO, client, addr, options).expect("connected");
            let back = Memory::new(3000);
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                let sent = Memory::from_fn(3000, |i| pattern(11, at + i));
                stream.send_all(&SOLO, sent.buffer()).expect("sent");
                assert_eq!(stream.recv_exact(&SOLO, back.buffer()), Ok(3000));
                assert!(back.holds(0, 3000, 11, at), "bytes changed on the way");
                at += 3000;
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            stream.close(&SOLO).expect("open");
        });
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let room = Memory::new(3000);
        while let n @ 1.. = stream.recv(&SOLO, room.buffer()).expect("data") {
            stream.send_all(&SOLO, room.buffer().first(n)).expect("sent");
        }
        stream.close(&SOLO).expect("open");
    });
    listener.close(&SOLO).expect("open");
}

#[test]
fn who_scribbles_harms_itself_and_its_own_partner_alone() {
    let dir = TempDir::new();
    let mut daemon = Running::start(gpunetd(&dir).args(["--threads", "2"]));
    let proxy = attach(&dir.join("d.sock"), small()).expect("a daemon");
    let all: Vec<_> = (0..2).map(|_| proxy.attach_cpu().expect("attached")).collect();
    let tokens: Vec<_> = all.iter().map(|one| one.token().expect("a number")).collect();
    let (net, other) = (tokens[0].net(), tokens[1].net());
    let home = SockAddr::v4([127, 0, 0, 1], 0);
    let listener = Listener::bind_with(&SOLO, net, home, Options::DEFAULT, 8).expect("a port");
    let mut program = program::start(&dir, "scribble", None, Some(listener.local_addr()));
    let mut partners: Vec<Stream> = (0..2).map(|_| listener.accept(&SOLO).expect("accepted")).collect();
    let room = Memory::new(1 << 16);
    for stream in &mut partners {
        assert_eq!(stream.recv_exact(&SOLO, room.buffer().first(5)), Ok(5));
        assert_eq!(room.copy(0, 5), b"hello");
    }
    assert_eq!(program.hear(), "ready");

    let (stop, rounds) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
    std::thread::scope(|scope| {
        let stop = &stop;
        // One shares its attachment with the scribbler's partner.
        for (options, rounds) in [PEER, TCP].into_iter().zip(&rounds) {
            scope.spawn(move || pair(net, other, options, stop, rounds));
        }
        let count = || [0, 1].map(|at| rounds[at].load(Ordering::Relaxed));
        until("both pairs run", || count().iter().all(|&rounds| rounds > 10));
        program.go_on();
        // The partner reads what there is: garbage or an error, and no hang.
        let mut ends = Vec::new();
        for stream in &mut partners {
            let start = Instant::now();
            ends.push(loop {
                match stream.receiver().recv_timeout(&SOLO, room.buffer(), Timeout::ms(200)) {
                    Ok(0) => break Ok(()),
                    Ok(_) => {}
                    Err(Error::TimedOut) if start.elapsed() < TIME + Duration::from_secs(5) => {}
                    Err(error) => break Err(error),
                }
                if start.elapsed() > TIME + Duration::from_secs(10) {
                    break Err(Error::TimedOut);
                }
            });
        }
        eprintln!("the partner's ends: {ends:?}; {}", program.hear());
        let before = count();
        until("both pairs go on", || count().iter().zip(before).all(|(now, before)| *now > before + 10));
        drop(program);
        stop.store(true, Ordering::Relaxed);
    });
    for stream in partners {
        let _ = stream.close(&SOLO);
    }
    listener.close(&SOLO).expect("open");
    until("the scribbler is forgotten and all is closed", || {
        let snapshot = gpunet_proxy::daemon::snapshot(&dir.join("d.sock")).expect("it answers");
        (snapshot.clients.len(), snapshot.sockets.len()) == (2, 0)
    });
    drop((tokens, all));
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.signal(rustix::process::Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}
