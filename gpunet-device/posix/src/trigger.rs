//! `gpunet_trigger_release`, `gpunet_wait`, `gpunet_test` and `gpunet_prepared_span`: directions
//! that the host has taken.

use super::call_timeout;
use gpunet_abi::{Error, Gate, Result, Trigger};
use gpunet_device::Timeout;
use gpunet_device::internal::pass;
use gpunet_device::trigger::{GateExt, TriggerExt};
use gpunet_device::{Group, Net};

/// Publishes a taken direction up to the trigger's position; does nothing if it is so far.
///
/// # Cooperation
/// All lanes call it with the same trigger, each after its own writes to the ring, or reads of it.
///
/// # Errors
/// As [`TriggerExt::release`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Prepared, Result};
/// # use gpunet_posix::trigger::release;
/// # fn example<G: Group>(g: &G, net: Net, message: Prepared) -> Result<()> {
/// // ... all lanes fill the message ...
/// release(g, net, message.trigger())?;
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn release<G: Group>(g: &G, net: Net, trigger: Trigger) -> Result<i64> {
    trigger.release(g, net).map(|()| 0)
}

/// Waits until a gate passes, with a timeout in nanoseconds; negative: without limit; 0: it does
/// not wait; [`SOCKET_TIMEOUT`](super::SOCKET_TIMEOUT): as the socket's options say.
///
/// # Cooperation
/// All lanes call it with the same arguments and get the same result.
///
/// # Errors
/// As [`GateExt::wait`]; WouldBlock when the timeout has passed, and TimedOut is the connection's
/// own.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Error, Group, Net, Prepared, Result};
/// # use gpunet_posix::trigger::wait;
/// # fn example<G: Group>(g: &G, net: Net, expected: Prepared) -> Result<()> {
/// match wait(g, net, expected.arrived(), 1_000_000) {
///     Err(Error::WouldBlock) => {} // not within 1 ms
///     passed => assert_eq!(passed?, 0),
/// }
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn wait<G: Group>(g: &G, net: Net, gate: Gate, timeout_ns: i64) -> Result<i64> {
    pass(g, net, gate, call_timeout(timeout_ns, Timeout::SOCKET), Error::WouldBlock).map(|()| 0)
}

/// Returns 1 if a gate passes now, else 0.
///
/// # Cooperation
/// All lanes call it with the same gate and get the same result.
///
/// # Errors
/// As [`GateExt::test`].
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Net, Prepared, Result};
/// # use gpunet_posix::trigger::test;
/// # fn example<G: Group>(g: &G, net: Net, message: Prepared, work: impl Fn()) -> Result<()> {
/// while test(g, net, message.done())? == 0 {
///     work();
/// }
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub fn test<G: Group>(g: &G, net: Net, gate: Gate) -> Result<i64> {
    gate.test(g, net).map(i64::from)
}
