//! The kernel of `gpunet-hello-http`: an HTTP server that says hello.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

use gpunet_device::{Group, Result};
use gpunet_http::{Connection, Http, Limits, Method, Reply, Router, Status, Step};
use gpunet_serve::{Carve, Next, Service, Turn};

/// A server that says hello.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Hello {
    /// What requests may have.
    pub limits: Limits,
}

impl Service for Hello {
    const ENTRY: &'static str = "gpunet_hello_http";
    type State = Connection;
    type Shared = ();

    fn shared(&self, _: &mut Carve) {}

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let Turn { state, input, output, context, .. } = turn;
        let mut http = Http::new(state, input, output, *context, self.limits);
        loop {
            let request = match http.next(g)? {
                Step::Request(request) => request,
                Step::Open => return Ok(Next::Close),
                Step::Wait(next) => return Ok(next),
            };
            let (mut route, text) = (Router::new(&request), Reply::new(Status::Ok, b"text/plain"));
            let is_answered = if route.is(Method::Get, b"/") {
                http.answer(g, text, b"hello\n")?
            } else if let Some(name) = route.with(Method::Get, b"/hello/{}") {
                http.answer_with(g, text, |body| {
                    body.put(g, b"hello, ");
                    body.put(g, name);
                    body.put(g, b"\n");
                })?
            } else {
                http.answer_other(g, &route)?
            };
            if !is_answered {
                return Ok(Next::Output);
            }
        }
    }

    const COPIED_INPUT: usize = 2048;
}

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::Hello;
    use gpunet_device::kernel_entry;
    use gpunet_serve::Server;

    kernel_entry!(hello_http, "gpunet_hello_http", Server<Hello>);
}
