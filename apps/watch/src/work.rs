//! A kernel with a planted stall, and what it says.

use crate::args::{DeviceArgs, WorkArgs};
use crate::error::Error;
use crate::kernels::Kernels;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use gpunet_proxy::FinishPolicy;
use gpunet_proxy::snapshot::Socket;
use gpunet_records_host::{ChromeTrace, FormatInfo, Formats, Found, Level, Reader, Settings, Watch};
use gpunet_watch_kernel::work_lines;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the program looks whether the kernel has ended.
const LOOKS: Duration = Duration::from_millis(20);

/// Runs the kernel.
pub fn run(args: &WorkArgs, interrupt: &Interrupt) -> Result<(), Error> {
    let kernels = Kernels::open(&args.device)?;
    let formats = work_lines::TABLE;
    let settings = Settings { level: Level::Debug, formats, ..Settings::new(args.device.blocks) };
    let (rings, reader) = kernels.rings(settings)?;
    let trace = args.trace.as_deref().map(|path| Trace::begin(path, &reader, formats)).transpose()?;
    let mut watch = watch(reader, settings.formats, &args.device)?;
    watch.each_line(|line| print(&format_args!("{line}\n")));
    if let Some(trace) = &trace {
        trace.watch(&mut watch);
    }
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
    if let Some(trace) = trace {
        trace.finish(found)?;
    }
    kernels.close();
    Ok(())
}

/// What a trace is written by.
type Writing = (ChromeTrace<BufWriter<File>>, Formats);

/// A trace that is written while records come.
struct Trace {
    path: String,
    /// `None`: it is finished.
    writing: Arc<Mutex<Option<Writing>>>,
}

impl Trace {
    fn begin(path: &Path, reader: &Reader, formats: &'static [FormatInfo]) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| Error::Trace(name.clone(), error))?;
        let trace = ChromeTrace::begin(BufWriter::new(file), std::process::id(), crate::NAME);
        let writing = Arc::new(Mutex::new(Some((trace, Formats::new(reader, formats)))));
        Ok(Self { path: name, writing })
    }

    /// Adds what the watch reads.
    fn watch(&self, watch: &mut Watch) {
        let writing = self.writing.clone();
        watch.each(move |record| {
            if let Some((trace, formats)) = &mut *writing.lock().unwrap_or_else(PoisonError::into_inner) {
                trace.put(record, formats.format(record));
            }
        });
    }

    fn finish(self, found: Found) -> Result<(), Error> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((mut trace, _)) = writing else { return Ok(()) };
        trace.missing(found);
        let counts = trace.finish().map_err(|error| Error::Trace(self.path.clone(), error))?;
        print(&format_args!("{} events in {}\n", counts.events, self.path));
        Ok(())
    }
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
