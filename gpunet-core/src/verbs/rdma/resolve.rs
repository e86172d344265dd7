//! From an address to a handshake: finding the device and the route.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::super::Handshake;
use super::cm::Id;
use super::connection::Connection;
use super::error::errno;
use super::event::{Event, Parameters, unreachable_code};
use super::handshake::RdmaHandshake;
use super::parts::{Parts, Stage};
use super::stack::Stack;
use super::wait::expect;

/// Per try, for the address and again for the route. An answer to ARP takes micro- to milliseconds.
const TIMEOUT_MS: i32 = 2000;
const TRIES: u32 = 3;

/// Finds the device and the route to `to`.
pub(super) async fn resolve(
    stack: Arc<Stack>,
    to: SocketAddr,
    from: Option<SocketAddr>,
) -> io::Result<Box<dyn Handshake>> {
    let id = Id::new(stack.library, Some(stack.pool.counts()))?;
    let parts = Parts { id, queues: None, stage: Stage::Fresh };
    // From here on the future may be dropped at any await: the janitor ends what there is.
    let mut connection = Connection::new(parts, Arc::clone(&stack.janitor_thread.janitor));
    let id = &mut connection.parts_mut().id;
    if from.is_some_and(|from| from.port() != 0) {
        // As TCP allows it for a socket that connects; where it is refused, the bind fails.
        let _ = id.set_reuse_address();
    }
    id.set_ack_timeout();
    let address = |id: &mut Id| id.resolve_addr(from, to, TIMEOUT_MS);
    persist(id, address, Event::is_address_resolved).await?;
    persist(id, |id| id.resolve_route(TIMEOUT_MS), Event::is_route_resolved).await?;
    let context = stack.pool.device(id)?;
    let parameters = Parameters::connecting(context.info.iwarp);
    Ok(Box::new(RdmaHandshake::new(connection, context, parameters, stack)))
}

/// Asks, and repeats the question when there is no answer.
async fn persist(
    id: &mut Id,
    ask: impl Fn(&mut Id) -> io::Result<()>,
    answer: fn(&Event) -> bool,
) -> io::Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        // At once: no device, no such source address. Those errnos are not all of connect(2).
        ask(id).map_err(immediate)?;
        match expect(id, answer).await {
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::TimedOut && tries < TRIES => {}
            Err(e) => return Err(e),
        }
    }
}

fn immediate(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code @ (libc::ENODEV | libc::ENXIO | libc::EHOSTUNREACH)) => errno(unreachable_code(code)),
        _ => error,
    }
}
