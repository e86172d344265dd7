//! Real verbs: libibverbs and librdmacm, opened at run time.
//!
//! | layer | modules | unsafe |
//! |---|---|---|
//! | C | `ffi` (types, numbers, functions), `address` | declares |
//! | objects | `cm` (identifiers, channels), `queue_pair`, `objects` (domains, regions, queues), `context`, `event` | calls |
//! | life | `parts` (everything one connection holds), `connection` and `janitor` (end it), `domain` and `pool` (registrations, kept) | none |
//! | the trait | `resolve`, `listener`, `handshake`, `endpoint` | none |
//! | beside them | `stack` (what the parts share), `wait` (events on the control thread), `probe` (which devices there are), `status`, `error`, `counts` | `wait` and `probe` call |
//!
//! An object keeps its parent alive, so that none is destroyed too early: connection > queue pair,
//! identifier > completion queue > lease of a domain > regions > protection domain > context.

#[allow(unsafe_code)]
mod address;
#[allow(unsafe_code)]
mod cm;
mod connection;
#[allow(unsafe_code)]
mod context;
mod counts;
mod domain;
mod endpoint;
mod error;
#[allow(unsafe_code)]
mod event;
#[allow(unsafe_code)]
mod ffi;
mod handshake;
mod janitor;
mod listener;
#[allow(unsafe_code)]
mod objects;
mod parts;
mod pool;
#[allow(unsafe_code)]
mod probe;
#[allow(unsafe_code)]
mod queue_pair;
mod resolve;
mod stack;
mod status;
#[allow(unsafe_code)]
mod wait;

pub use error::Unavailable;
#[doc(hidden)]
pub use ffi::layout;
pub use probe::{DeviceReport, DeviceTransport, LinkLayer, OpenedReport, PortReport, PortState};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Handshake, Listening, Pending, Usage, Verbs};
use counts::Counts;
use ffi::Library;
use janitor::JanitorThread;
use pool::Pool;
use stack::Stack;

/// The RDMA devices of this machine.
///
/// Its futures need a tokio runtime with I/O enabled around them. A process that gives up
/// privileges does so before it opens this: rdma_cm refuses a thread whose credentials have changed
/// since.
pub struct Rdma {
    stack: Arc<Stack>,
}

impl Rdma {
    /// Loads the libraries and looks for a device.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn open() -> Result<Self, Unavailable> {
        let library = Library::load()?;
        // rdma_cm first: without its file no device is of use.
        cm::Channel::new(library).map_err(|e| {
            Unavailable::from_call("rdma_create_event_channel", "/dev/infiniband/rdma_cm", &e)
        })?;
        let devices = probe::devices(library)?;
        if devices.iter().all(|device| device.opened.is_err())
            && let Some(why) = devices.into_iter().find_map(|device| device.opened.err())
        {
            return Err(why);
        }
        let janitor_thread = JanitorThread::start()
            .map_err(|e| Unavailable::Failed { call: "starting a thread", reason: e.to_string() })?;
        let pool = Pool::new(Arc::new(Counts::default()));
        Ok(Self { stack: Arc::new(Stack { library, pool, janitor_thread }) })
    }

    /// Describes what there is, for people.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn devices() -> Result<Vec<DeviceReport>, Unavailable> {
        probe::devices(Library::load()?)
    }
}

impl Verbs for Rdma {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> io::Result<Box<dyn Listening>> {
        Ok(Box::new(listener::RdmaListening::new(Arc::clone(&self.stack), addr, backlog)?))
    }

    fn resolve(&self, to: SocketAddr, from: Option<SocketAddr>) -> Pending<Box<dyn Handshake>> {
        Box::pin(resolve::resolve(Arc::clone(&self.stack), to, from))
    }

    fn forget(&self, owner: u64) {
        self.stack.pool.forget(owner);
    }

    fn usage(&self) -> Usage {
        self.stack.pool.counts().usage()
    }
}
