//! Which transport carries a stream: what `bind` listens on, and in which order `connect` tries.

use super::request::allowed;
use crate::model::config::{Config, Rdma};
use gpunet_abi::options::TransportKind;
use gpunet_core::ids::AttachmentId;
use gpunet_core::transport::peer::Peer;
use gpunet_core::transport::rc::{Rc, RcSettings};
use gpunet_core::transport::tcp::Tcp;
use gpunet_core::transport::{Bound, Connect, Connecting, Listen, Opening, Transport};
use gpunet_core::verbs::rdma;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc as Shared;
use std::time::{Duration, Instant};

/// How long an automatic connect tries rc before it falls back to TCP.
const RC_CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a destination that did not answer over rc is not tried again.
const RC_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Most destinations that are remembered.
const MAX_KNOWN: usize = 4096;

/// The transports of a proxy, and which destinations answered over rc.
pub(super) struct Routes {
    /// Opened on first use; the reason if that failed.
    rc: Option<Result<Rc, String>>,
    rdma: Rdma,
    settings: RcSettings,
    peers: Vec<IpAddr>,
    known: HashMap<SocketAddr, RcState>,
}

/// Whether a destination answered over rc.
#[derive(Clone, Copy)]
enum RcState {
    Reachable,
    Unreachable { until: Instant },
}

impl Routes {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            rc: None,
            rdma: config.rdma.clone(),
            settings: RcSettings { keepalive: config.rc_keepalive },
            peers: config.rc_peers.clone(),
            known: HashMap::new(),
        }
    }

    /// The rc transport, or why there is none.
    fn rc(&mut self) -> Result<&Rc, String> {
        let (rdma, settings) = (&self.rdma, self.settings);
        let opened = self.rc.get_or_insert_with(|| {
            let verbs: Shared<dyn gpunet_core::verbs::Verbs> = match rdma {
                Rdma::Off => return Err("rc is switched off in the proxy's settings".to_owned()),
                Rdma::System => match rdma::Rdma::open() {
                    Ok(rdma) => Shared::new(rdma),
                    Err(why) => return Err(why.to_string()),
                },
                #[cfg(feature = "sim")]
                Rdma::Simulated(fabric) => Shared::from(fabric.verbs()),
            };
            Ok(Rc::new(verbs, settings))
        });
        opened.as_ref().map_err(Clone::clone)
    }

    /// Deregisters an attachment's memory.
    pub(super) fn forget(&self, owner: AttachmentId) {
        if let Some(Ok(rc)) = &self.rc {
            rc.verbs().forget(u64::from(owner.0));
        }
    }

    /// Listens on every transport that the socket may use. TCP always holds the port; failures of
    /// the others only count if the socket demands them.
    pub(super) fn listen(
        &mut self,
        peer: &Peer,
        bound: &Bound,
        backlog: u32,
    ) -> io::Result<Vec<Box<dyn Listen>>> {
        let option = bound.options.transport;
        let mut listening = Vec::new();
        if allowed(option, TransportKind::Peer) {
            extra(option, bound, "peer", peer.listen(bound, backlog), &mut listening)?;
        }
        if allowed(option, TransportKind::Tcp) {
            listening.push(Tcp.listen(bound, backlog)?);
        }
        if allowed(option, TransportKind::Rc) {
            let rc = self.rc().map_err(unavailable).and_then(|rc| rc.listen(bound, backlog));
            extra(option, bound, "rc", rc, &mut listening)?;
        }
        Ok(listening)
    }

    /// The transport for a connect that peer does not serve, and the one to try if it fails. That
    /// is rc if it is demanded, or first where the destination is known to speak it; otherwise TCP.
    pub(super) fn plan(&mut self, connect: &Connect) -> (TransportKind, Option<TransportKind>) {
        if !allowed(connect.options.transport, TransportKind::Tcp) {
            return (TransportKind::Rc, None);
        }
        let first = allowed(connect.options.transport, TransportKind::Rc) && self.speaks_rc(connect.to);
        if first && self.rc().is_ok() {
            return (TransportKind::Rc, Some(TransportKind::Tcp));
        }
        (TransportKind::Tcp, None)
    }

    /// Connects over a driven transport; with a shorter timeout if another is tried after it.
    pub(super) fn connect(&mut self, kind: TransportKind, connect: Connect, has_fallback: bool) -> Opening {
        if kind != TransportKind::Rc {
            return start(Tcp.connect(connect));
        }
        let opening = match self.rc() {
            Ok(rc) => start(rc.connect(connect)),
            Err(why) => {
                tracing::warn!(why, "rc is not available");
                return Box::pin(async { Err(unavailable(why)) });
            }
        };
        if !has_fallback {
            return opening;
        }
        Box::pin(async {
            let late = |_| Err(io::ErrorKind::TimedOut.into());
            tokio::time::timeout(RC_CONNECT_TIMEOUT, opening).await.unwrap_or_else(late)
        })
    }

    /// Notes whether a destination was reached over rc.
    pub(super) fn note(&mut self, to: SocketAddr, kind: TransportKind, reached: bool) {
        if kind == TransportKind::Rc {
            let until = Instant::now() + RC_RETRY_AFTER;
            if self.known.len() >= MAX_KNOWN {
                self.known.retain(
                    |_, state| matches!(state, RcState::Unreachable { until } if Instant::now() < *until),
                );
            }
            self.known.insert(to, if reached { RcState::Reachable } else { RcState::Unreachable { until } });
        }
    }

    fn speaks_rc(&self, to: SocketAddr) -> bool {
        match self.known.get(&to) {
            Some(RcState::Reachable) => true,
            Some(RcState::Unreachable { until }) if Instant::now() < *until => false,
            _ => self.peers.contains(&to.ip()),
        }
    }
}

fn unavailable(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, why)
}

fn start(connecting: Connecting) -> Opening {
    match connecting {
        Connecting::Pending(opening) => opening,
        _ => Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) }),
    }
}

/// Adds a listener; a failure only counts if the transport is demanded.
fn extra(
    option: u8,
    bound: &Bound,
    name: &str,
    result: io::Result<Box<dyn Listen>>,
    listening: &mut Vec<Box<dyn Listen>>,
) -> io::Result<()> {
    match result {
        Ok(one) => listening.push(one),
        Err(error) if option == TransportKind::Auto as u8 => {
            tracing::debug!(addr = %bound.addr, %error, "no {name} listener");
        }
        Err(error) => {
            tracing::warn!(addr = %bound.addr, %error, "cannot listen on {name}");
            return Err(error);
        }
    }
    Ok(())
}
