//! How long it takes to attach to a daemon, without a GPU.

use super::Run;
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row};
use gpunet_proxy::Config;
use std::time::Instant;

/// Attaches and detaches the CPU device, with the default ring memory and with little.
pub fn attach(run: &mut Run<'_>) -> Outcome<()> {
    if !run.proxy.names_a_daemon() {
        return Err("attach needs a daemon: gpunet-bench --daemon PATH attach".into());
    }
    run.recorder.table("attach", "the CPU device, to a daemon", Axis::None, Vec::new(), 2)?;
    for (name, config) in [("256 MiB", Config::default()), ("16 MiB", Config::small())] {
        let mut samples = Vec::new();
        for _ in 0..run.effort.of(20, 50, 200) {
            let start = Instant::now();
            let attachment = run.proxy.open(config.clone())?.attach_cpu()?;
            samples.push(start.elapsed().as_nanos() as u64);
            let _ = attachment.close();
        }
        run.recorder.row(Row::times(Role::Gpunet, format!("attach, {name} of rings"), &samples));
    }
    Ok(())
}
