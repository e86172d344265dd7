//! An HTTP server by hyper with the answer of gpunet-hello-http, as `gpunet-bench servers http`
//! compares with it: `hyper-hello THREADS`. Each thread has a runtime, and they take connections in
//! turn.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::error::Error;
use std::net::{Ipv4Addr, TcpListener};

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (status, body) = match request.uri().path() {
        "/" => (StatusCode::OK, "hello\n"),
        _ => (StatusCode::NOT_FOUND, "not found\n"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    Ok(response)
}

/// Accepts and serves, on this thread.
fn serve(listener: TcpListener) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            tokio::spawn(connection);
        }
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(1), |text| text.parse::<usize>());
    let threads = threads.map_err(|error| format!("usage: hyper-hello THREADS: {error}"))?.max(1);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    println!("listening on {}", listener.local_addr()?);
    let listeners: Vec<_> = (0..threads).map(|_| listener.try_clone()).collect::<Result<_, _>>()?;
    let serving: Vec<_> =
        listeners.into_iter().map(|listener| std::thread::spawn(move || serve(listener))).collect();
    for thread in serving {
        thread.join().map_err(|_| "a thread panicked")??;
    }
    Ok(())
}
