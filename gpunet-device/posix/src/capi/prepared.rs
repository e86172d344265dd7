//! What the host has prepared: triggers, gates and messages, by value.

use super::callers::{block, thread, warp};
use super::data::Span;
use gpunet_abi::{Gate, Prepared, Trigger};
use gpunet_device::trigger::PreparedExt;

macro_rules! prepared {
    ($(
        by $caller:expr;
        $release:ident | $grelease:ident, $wait:ident | $gwait:ident, $test:ident | $gtest:ident,
        $span:ident | $gspan:ident;
    )*) => {exports! {$(
        fn $release | $grelease(g = $caller, net, trigger: Trigger) -> i32 {
            crate::trigger::release(g, net, trigger)
        }

        fn $wait | $gwait(g = $caller, net, gate: Gate, timeout_ns: i64) -> i32 {
            crate::trigger::wait(g, net, gate, timeout_ns)
        }

        fn $test | $gtest(g = $caller, net, gate: Gate) -> i32 {
            crate::trigger::test(g, net, gate)
        }

        fn $span | $gspan(g = $caller, net, message: Prepared, span: *mut Span) -> i64 {
            crate::unless(!span.is_null(), crate::errno::FAULT)?;
            // SAFETY: `span` is writable, by the caller's contract.
            unsafe { Span::tell(span, message.span(g, net)) }
        }
    )*}};
}

prepared! {
    by block();
    gpunet_trigger_release | gtrigger_release, gpunet_wait | gwait, gpunet_test | gtest,
    gpunet_prepared_span | gprepared_span;

    by warp();
    gpunet_trigger_release_warp | gtrigger_release_warp, gpunet_wait_warp | gwait_warp, gpunet_test_warp | gtest_warp,
    gpunet_prepared_span_warp | gprepared_span_warp;

    by thread();
    gpunet_trigger_release_thread | gtrigger_release_thread, gpunet_wait_thread | gwait_thread, gpunet_test_thread | gtest_thread,
    gpunet_prepared_span_thread | gprepared_span_thread;
}
