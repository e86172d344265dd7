//! What a connection holds in the fabric.

use super::fabric::Fabric;
use super::state::HostId;
use std::io;

/// What a connection holds in the fabric; gives it back when dropped.
pub(super) struct Hold {
    pub fabric: Fabric,
    pub host: HostId,
    pub qp: Option<u64>,
    /// The request that it made or was shown, as long as it is not answered.
    pub request: Option<RequestSide>,
}

/// Which end of a connection request it is, with the request's number.
pub(super) enum RequestSide {
    Active(u64),
    Passive(u64),
}

impl Drop for Hold {
    fn drop(&mut self) {
        let (host, qp, request) = (self.host, self.qp, self.request.take());
        self.fabric.locked(|state| {
            match request {
                Some(RequestSide::Active(number)) => {
                    state.requests.remove(&number);
                    state.end_accept(number, io::ErrorKind::ConnectionAborted);
                }
                Some(RequestSide::Passive(number)) => state.refuse(number, io::ErrorKind::ConnectionRefused),
                None => {}
            }
            if let Some(qp) = qp {
                state.disconnect(host, qp);
            }
            state.hosts[host.0].identifiers -= 1;
        });
    }
}
