//! Completion statuses.

use super::super::Status;
use super::ffi::numbers as n;

/// Maps an `ibv_wc_status`.
pub(super) fn status(code: u32) -> Status {
    match code {
        n::WC_SUCCESS => Status::Success,
        n::WC_WR_FLUSH_ERR => Status::Flushed,
        n::WC_RETRY_EXC_ERR => Status::RetryExceeded,
        n::WC_RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
        n::WC_REM_ACCESS_ERR | n::WC_REM_INV_REQ_ERR | n::WC_REM_OP_ERR => Status::RemoteRefused,
        other => Status::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_status_keeps_its_number() {
        assert_eq!(status(12), Status::RetryExceeded);
        assert_eq!(status(77), Status::Other(77));
    }
}
