//! A kernel with a planted stall, and what it says.

use crate::args::{DeviceArgs, WorkArgs};
use crate::error::Error;
use crate::kernels::Kernels;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use gpunet_proxy::FinishPolicy;
use gpunet_proxy::snapshot::Socket;
use gpunet_records_host::{Level, Reader, Settings, Watch};
use gpunet_watch_kernel::work_lines;
use std::time::{Duration, Instant};

/// How often the program looks whether the kernel has ended.
const LOOKS: Duration = Duration::from_millis(20);

/// Runs the kernel.
pub fn run(args: &WorkArgs, interrupt: &Interrupt) -> Result<(), Error> {
    let kernels = Kernels::open(&args.device)?;
    let formats = work_lines::TABLE;
    let settings = Settings { level: Level::Debug, formats, ..Settings::new(args.device.blocks) };
    let (rings, reader) = kernels.rings(settings)?;
    let mut watch = watch(reader, settings.formats, &args.device)?;
    watch.each_line(|line| print(&format_args!("{line}\n")));
    let watching = watch.start().map_err(Error::Thread)?;
    let kernel = kernels.work(rings, args.steps, args.stalls)?;
    let (started, limit) = (Instant::now(), Duration::from_secs(args.seconds));
    while !kernel.wait(LOOKS)? && started.elapsed() < limit && !interrupt.asked() {}
    if !kernel.is_finished()? {
        show_waits(&kernels);
        print(&format_args!("{}: the kernel still runs, and is cancelled\n", crate::NAME));
        kernel.end()?;
    }
    kernel.finish(FinishPolicy::Close)?;
    let found = watching.stop();
    print(&format_args!("{} records, {} lost\n", found.records, found.lost()));
    kernels.close();
    Ok(())
}

/// Shows what each block waits for, as `gpunetctl top` does.
fn show_waits(kernels: &Kernels) {
    let Some(snapshot) = kernels.snapshot() else { return };
    for wait in &snapshot.waits {
        let is_its = |socket: &&Socket| (socket.client, Some(socket.slot)) == (wait.client, wait.slot);
        let socket = snapshot.sockets.iter().find(is_its).and_then(|socket| socket.local);
        let at = socket.map_or_else(String::new, |local| format!(" at {local}"));
        let (block, call, ms) = (wait.block, &wait.call, wait.waited_us / 1000);
        print(&format_args!("block {block} has waited for {ms} ms: {call}{at}\n"));
    }
}

/// A watch with the addresses that were asked for.
pub fn watch(
    reader: Reader,
    formats: &'static [gpunet_records_host::FormatInfo],
    args: &DeviceArgs,
) -> Result<Watch, Error> {
    let mut watch = Watch::new(reader, formats);
    watch.latency(Duration::from_micros(args.latency));
    let cannot = |addr: &str| {
        let addr = addr.to_owned();
        move |error| Error::Address(addr, error)
    };
    if let Some(addr) = &args.serve {
        let bound = watch.serve(addr.as_str()).map_err(cannot(addr))?;
        eprintln!("{}: records: {bound}", crate::NAME);
    }
    if let Some(addr) = &args.serve_lines {
        let bound = watch.serve_lines(addr.as_str()).map_err(cannot(addr))?;
        eprintln!("{}: lines: {bound}", crate::NAME);
    }
    Ok(watch)
}
