//! The same routes by hyper, as a reference.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::net::SocketAddr;
use std::pin::Pin;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (status, body) = match (head.method.as_str(), head.uri.path()) {
        ("GET" | "HEAD", "/") => (200, Bytes::from_static(b"hello\n")),
        ("POST" | "PUT", "/echo") => (200, body),
        _ => (404, Bytes::from_static(b"not found\n")),
    };
    Ok(Response::builder().status(status).body(Full::new(body)).expect("an answer"))
}

/// What a request is: its method, target and body.
async fn description(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let start = format!("{} {}?{} ", head.method, head.uri.path(), head.uri.query().unwrap_or_default());
    let body = [start.as_bytes(), &body.collect().await?.to_bytes()].concat();
    Ok(Response::new(Full::new(body.into())))
}

/// A server that answers each request with what it is.
pub fn describe() -> SocketAddr {
    start(|request| Box::pin(description(request)))
}

/// The routes of the server under test.
pub fn serve() -> SocketAddr {
    start(|request| Box::pin(answer(request)))
}

type Answering = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, hyper::Error>> + Send>>;

/// Starts it on a thread of its own, for as long as the process lives.
fn start(answer: fn(Request<Incoming>) -> Answering) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.set_nonblocking(true).expect("an option");
    let addr = listener.local_addr().expect("an address");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    std::thread::spawn(move || {
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let mut builder = hyper::server::conn::http1::Builder::new();
                builder.half_close(true).timer(TokioTimer::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service_fn(answer)));
            }
        })
    });
    addr
}
