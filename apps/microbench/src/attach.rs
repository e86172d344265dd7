//! How long it takes to attach to a daemon, without a GPU.

use crate::table::Percentiles;
use gpunet_app::proxy::ProxyArgs;
use gpunet_proxy::Config;
use std::error::Error;
use std::time::Instant;

const ROUNDS: usize = 50;

/// Attaches and detaches the CPU device, with the default's ring memory and with little.
pub fn attach(proxy: &ProxyArgs) -> Result<(), Box<dyn Error>> {
    if !proxy.names_a_daemon() {
        return Err("attach needs a daemon: gpunet-bench --daemon PATH attach".into());
    }
    for (name, config) in [("256 MiB", Config::default()), ("16 MiB", Config::small())] {
        let mut samples = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let attachment = proxy.open(config.clone())?.attach_cpu()?;
            samples.push(start.elapsed().as_nanos() as u64);
            let _ = attachment.close();
        }
        Percentiles::of(&samples).row(&format!("gpunet: attach to a daemon, {name} of rings"));
    }
    Ok(())
}
