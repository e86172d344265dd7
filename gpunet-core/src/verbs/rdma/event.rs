//! Events of rdma_cm, and the connection parameters that some carry.

use std::io;
use std::ptr;

use super::error::errno;
use super::ffi;
use super::ffi::numbers as n;

/// What happened to an identifier.
#[derive(Clone, Debug)]
pub(super) struct Event {
    kind: u32,
    /// 0, a negative errno, or a reject reason.
    pub(super) status: i32,
    /// As received: zero padded on InfiniBand and RoCE.
    pub(super) private_data: Vec<u8>,
    /// The peer's wishes, in a connection request.
    pub(super) parameters: Parameters,
}

/// Connection parameters without their private data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameters {
    responder_resources: u8,
    initiator_depth: u8,
    flow_control: u8,
    retry_count: u8,
    rnr_retry_count: u8,
}

impl Parameters {
    /// Those of a connecting end: six retries (rxe takes the largest number, seven, for "forever"),
    /// RNR forever, no reads or atomics. The set-up of an iWARP connection may need one read.
    pub(super) fn connecting(iwarp: bool) -> Self {
        Self {
            responder_resources: 0,
            initiator_depth: u8::from(iwarp),
            flow_control: 1,
            retry_count: 6,
            rnr_retry_count: 7,
        }
    }

    pub(super) fn with_data(self, private_data: &[u8]) -> io::Result<ffi::ConnParam> {
        let len = u8::try_from(private_data.len()).map_err(|_| errno(libc::EINVAL))?;
        Ok(ffi::ConnParam {
            private_data: private_data.as_ptr().cast(),
            private_data_len: len,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            flow_control: self.flow_control,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: 0,
            qp_num: 0,
        })
    }
}

impl Event {
    /// # Safety
    /// `raw` is an event as librdmacm made it, not yet acknowledged.
    pub(super) unsafe fn read(raw: &ffi::CmEvent) -> Self {
        let conn = &raw.conn;
        let carries_data = matches!(
            raw.event,
            n::EVENT_CONNECT_REQUEST | n::EVENT_CONNECT_RESPONSE | n::EVENT_ESTABLISHED | n::EVENT_REJECTED
        );
        let private_data = if carries_data && !conn.private_data.is_null() {
            let (at, len) = (conn.private_data.cast::<u8>(), usize::from(conn.private_data_len));
            let mut bytes = vec![0; len];
            // SAFETY: these kinds carry connection parameters, whose private data of that length
            // lies in the event (the caller's promise); copied before it is acknowledged.
            unsafe { ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), len) };
            bytes
        } else {
            Vec::new()
        };
        let parameters = Parameters {
            responder_resources: conn.responder_resources,
            initiator_depth: conn.initiator_depth,
            flow_control: conn.flow_control,
            retry_count: conn.retry_count,
            rnr_retry_count: conn.rnr_retry_count,
        };
        Self { kind: raw.event, status: raw.status, private_data, parameters }
    }

    pub(super) fn is_request(&self) -> bool {
        self.kind == n::EVENT_CONNECT_REQUEST
    }

    pub(super) fn is_address_resolved(&self) -> bool {
        self.kind == n::EVENT_ADDR_RESOLVED
    }

    pub(super) fn is_route_resolved(&self) -> bool {
        self.kind == n::EVENT_ROUTE_RESOLVED
    }

    pub(super) fn is_established(&self) -> bool {
        self.kind == n::EVENT_ESTABLISHED
    }

    /// Ends an established connection.
    pub(super) fn is_end(&self) -> bool {
        matches!(self.kind, n::EVENT_DISCONNECTED | n::EVENT_DEVICE_REMOVAL | n::EVENT_TIMEWAIT_EXIT)
    }

    /// The device is going away.
    pub(super) fn is_removal(&self) -> bool {
        self.kind == n::EVENT_DEVICE_REMOVAL
    }

    /// The error that this event is to a caller who waited for another; `None` if it is none.
    pub(super) fn error(&self) -> Option<io::Error> {
        let code = match self.kind {
            // The status distinguishes the device's answer from a timeout.
            n::EVENT_ADDR_ERROR | n::EVENT_ROUTE_ERROR => unreachable_code(self.status),
            n::EVENT_UNREACHABLE => unreachable_code(self.status),
            n::EVENT_CONNECT_ERROR if self.status < 0 => self.status.saturating_abs(),
            n::EVENT_CONNECT_ERROR => libc::ECONNABORTED,
            // 28: rejected by the consumer; 8: no listener; negative: an iWARP peer's TCP.
            n::EVENT_REJECTED => libc::ECONNREFUSED,
            n::EVENT_DISCONNECTED | n::EVENT_TIMEWAIT_EXIT => libc::ECONNRESET,
            n::EVENT_DEVICE_REMOVAL => libc::ENETDOWN,
            _ => return None,
        };
        Some(errno(code))
    }
}

/// Maps the reasons why an address or route is not found to those of connect(2).
pub(super) fn unreachable_code(status: i32) -> i32 {
    match status.saturating_abs() {
        libc::ETIMEDOUT => libc::ETIMEDOUT,
        // No RDMA device leads there.
        libc::ENODEV | libc::ENXIO | libc::ENETUNREACH => libc::ENETUNREACH,
        libc::EADDRNOTAVAIL => libc::EADDRNOTAVAIL,
        _ => libc::EHOSTUNREACH,
    }
}
