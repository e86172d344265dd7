//! Admission: identifies a client, and checks it against the access rules and its limits.

use super::outbox::{AgentRequests, Outbox, agent_link};
use super::{DaemonState, lock};
use crate::engine::control::SLOT_BYTES;
use crate::engine::region::shared_memory;
use crate::model::access::{Account, Limits};
use crate::model::attachment_state::{
    AttachmentState, CardMemory, ClientInfo, Inbox, Quota, Totals, printable,
};
use crate::model::config::Config;
use crate::model::error::AttachError;
use crate::os::doorbell::one_for_each;
use crate::os::peer::Credentials;
use crate::wire::{AttachRequest, DaemonRepr, DeviceRepr, Sizes, ToProgram};
use gpu_usermap::RegionError;
use gpunet_abi::Error;
use gpunet_abi::hand_off::blocks_poll;
use gpunet_abi::layout::{DeviceLayout, Geometry, SharedLayout};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Descriptors of an attachment besides its doorbells: the connection, the region, and one in
/// transit.
const OF_AN_ATTACHMENT: u64 = 3;
/// The longest name of a device.
const MAX_DEVICE: usize = 256;

/// Why a client is refused.
pub(super) struct Refusal {
    pub(super) errno: i32,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(error: Error, reason: impl Into<String>) -> Self {
        Self { errno: error.errno(), reason: reason.into() }
    }
}

/// A new attachment that was not reported to the client yet.
pub(super) struct Admitted {
    pub(super) attachment: Arc<AttachmentState>,
    pub(super) agent_requests: AgentRequests,
    pub(super) account: Arc<Account>,
    pub(super) welcome: ToProgram,
}

impl DaemonState {
    /// This daemon's description of itself.
    pub(super) fn introduction(&self) -> DaemonRepr {
        let config = &self.proxy.config;
        DaemonRepr {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            shards: config.data_threads as u32,
            heartbeat_ms: config.heartbeat.as_millis() as u64,
            linger_ms: config.linger.as_millis() as u64,
        }
    }

    /// The limits of a client.
    pub(super) fn limits(&self, who: &Credentials) -> Result<Limits, Refusal> {
        lock(&self.access).limits_for(who).ok_or_else(|| {
            let reason = format!(
                "user {} may not use this daemon; its administrator can allow it (allow_users, allow_groups)",
                who.uid
            );
            Refusal::new(Error::AccessDenied, reason)
        })
    }

    /// Makes the attachment that a client requests.
    pub(super) async fn admit(
        &self,
        who: &Credentials,
        limits: Limits,
        request: AttachRequest,
        dmabuf: Option<OwnedFd>,
        outbox: &Outbox,
    ) -> Result<Admitted, Refusal> {
        if self.proxy.messages.is_closed() {
            return Err(Refusal::new(Error::NetworkDown, "its proxy has stopped"));
        }
        let geometry = self.geometry(&request)?;
        let card = card(&request, &geometry, dmabuf)?;
        let (polled, shareable, device) = match request.device {
            DeviceRepr::Cpu => (blocks_poll(), false, "cpu".to_owned()),
            DeviceRepr::Cuda { name, shareable, .. } if name.len() <= MAX_DEVICE => {
                (true, shareable, name.chars().filter(|c| !c.is_control()).collect())
            }
            DeviceRepr::Cuda { .. } => {
                return Err(Refusal::new(Error::InvalidArgument, "a device without a name"));
            }
        };
        let account = self.accounts.account(who.uid, limits);
        // Before the memory is allocated: a client over its quota does not get it for a moment
        // either.
        let bytes = SharedLayout::new(&geometry).len + u64::from(geometry.slots()) * SLOT_BYTES;
        let quota = Quota::take(account.clone(), bytes, OF_AN_ATTACHMENT + u64::from(geometry.shards))
            .map_err(|(error, reason)| Refusal::new(error, reason))?;
        let memory = match self.pool.call(move || shared_memory(geometry)).await {
            Some(Ok(memory)) => memory,
            Some(Err(error @ AttachError::Region { source: RegionError::DescriptorLimit { .. }, .. })) => {
                return Err(Refusal::new(Error::TooManyFiles, error.to_string()));
            }
            Some(Err(error @ AttachError::Region { source: RegionError::FileLimit { .. }, .. })) => {
                let reason = format!("{error} (the daemon's)");
                return Err(Refusal::new(Error::from_errno(libc::EFBIG), reason));
            }
            Some(Err(error)) => return Err(Refusal::new(Error::NoBuffers, error.to_string())),
            None => {
                return Err(Refusal::new(
                    Error::NoBuffers,
                    "the daemon failed to make its memory; see its log",
                ));
            }
        };
        let doorbells = one_for_each(geometry.shards as usize).map_err(|error| {
            Refusal::new(
                crate::os::errno::from_io(&error),
                format!("cannot make a doorbell: {error}; see the daemon's `ulimit -n`"),
            )
        })?;
        let agent_requests = AgentRequests::default();
        let attachment = Arc::new(AttachmentState {
            id: self.proxy.next_id(),
            memory,
            polled,
            shareable,
            agent: agent_link(outbox.clone(), agent_requests.clone()),
            card,
            totals: Totals::default(),
            inbox: Inbox::new(geometry.controls),
            doorbells,
            account: Some(account.clone()),
            client: ClientInfo { pid: who.pid, uid: who.uid, command: printable(&request.command), device },
            since: Instant::now(),
            _quota: Some(quota),
        });
        let welcome = ToProgram::Welcome { daemon: self.introduction(), geometry: Sizes::from(&geometry) };
        Ok(Admitted { attachment, agent_requests, account, welcome })
    }

    /// The sizes of an attachment, checked.
    fn geometry(&self, request: &AttachRequest) -> Result<Geometry, Refusal> {
        let bad =
            |error: crate::model::config::BadConfig| Refusal::new(Error::InvalidArgument, error.to_string());
        let &AttachRequest { sockets, controls, shared_rings, device_rings, .. } = request;
        let config = Config { sockets, controls, shared_rings, ..self.proxy.config.clone() };
        // The CPU device has none.
        let device_rings = Some(device_rings).filter(|&bytes| bytes > 0);
        let config = Config { device_rings: device_rings.unwrap_or(config.device_rings), ..config };
        config.check().map_err(bad)?;
        Ok(config.geometry(device_rings.unwrap_or(0)))
    }
}

/// How a network card reaches the client's device; checked.
fn card(
    request: &AttachRequest,
    geometry: &Geometry,
    dmabuf: Option<OwnedFd>,
) -> Result<Option<CardMemory>, Refusal> {
    let (Some(card), Some(fd)) = (request.card, dmabuf) else { return Ok(None) };
    let needed = DeviceLayout::new(geometry).len;
    let ends = [card.address.checked_add(card.len), card.offset.checked_add(card.len)];
    if geometry.device_rings == 0 || card.len < needed || ends.contains(&None) {
        return Err(Refusal::new(Error::InvalidArgument, "the device's memory is not what its sizes say"));
    }
    let fd = Arc::new(fd);
    // The descriptor keeps the memory itself; the proxy maps none of it.
    Ok(Some(CardMemory { address: card.address, dmabuf: Some((fd.clone(), card.offset)), keep: fd }))
}
