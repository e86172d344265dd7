//! Completion statuses.

use super::super::CompletionStatus;
use super::ffi::numbers as n;

/// Maps an `ibv_wc_status`.
pub(super) fn status(code: u32) -> CompletionStatus {
    match code {
        n::WC_SUCCESS => CompletionStatus::Success,
        n::WC_WR_FLUSH_ERR => CompletionStatus::Flushed,
        n::WC_RETRY_EXC_ERR => CompletionStatus::RetryExceeded,
        n::WC_RNR_RETRY_EXC_ERR => CompletionStatus::RnrRetryExceeded,
        n::WC_REM_ACCESS_ERR | n::WC_REM_INV_REQ_ERR | n::WC_REM_OP_ERR => CompletionStatus::RemoteRefused,
        other => CompletionStatus::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_status_keeps_its_number() {
        assert_eq!(status(12), CompletionStatus::RetryExceeded);
        assert_eq!(status(77), CompletionStatus::Other(77));
    }
}
