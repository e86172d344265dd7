//! Triggers, gates and messages that the host has prepared, by value.

use super::callers::{block, thread, warp};
use crate::in_place::{Span, tell};
use gpunet_abi::{Gate, Prepared, Trigger};
use gpunet_device::trigger::PreparedExt;

macro_rules! prepared {
    ($(
        by $caller:expr;
        $release:ident, $wait:ident, $test:ident,
        $span:ident;
    )*) => {exports! {$(
        fn $release(g = $caller, net, trigger: Trigger) -> i32 {
            crate::trigger::release(g, net, trigger)
        }

        fn $wait(g = $caller, net, gate: Gate, timeout_ns: i64) -> i32 {
            crate::trigger::wait(g, net, gate, timeout_ns)
        }

        fn $test(g = $caller, net, gate: Gate) -> i32 {
            crate::trigger::test(g, net, gate)
        }

        fn $span(g = $caller, net, message: Prepared, span: *mut Span) -> i64 {
            crate::unless(!span.is_null(), crate::errno::FAULT)?;
            // SAFETY: `span` is writable, by the caller's contract.
            unsafe { tell(span, message.span(g, net)) }
        }
    )*}};
}

prepared! {
    by block();
    gpunet_trigger_release, gpunet_wait, gpunet_test,
    gpunet_prepared_span;

    by warp();
    gpunet_trigger_release_warp, gpunet_wait_warp, gpunet_test_warp,
    gpunet_prepared_span_warp;

    by thread();
    gpunet_trigger_release_thread, gpunet_wait_thread, gpunet_test_thread,
    gpunet_prepared_span_thread;
}
