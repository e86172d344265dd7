//! Records as fast as they come, and what that takes.

use crate::args::{FloodArgs, What};
use crate::collect::{Collected, collect};
use crate::error::Error;
use crate::kernels::Kernels;
use crate::work::watch;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use gpunet_app::kernel::rows;
use gpunet_proxy::FinishPolicy;
use gpunet_proxy::device::Timeout;
use gpunet_records_host::{Settings, WhenFull};
use gpunet_watch_kernel::flood_lines;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How often the program looks whether the kernel has ended.
const LOOKS: Duration = Duration::from_millis(20);
/// Bytes of a record with its payload.
const RECORD: u64 = 32;

/// Runs the kernel.
pub fn run(args: &FloodArgs, interrupt: &Interrupt) -> Result<(), Error> {
    let kernels = Kernels::open(&args.device)?;
    let settings = Settings {
        records: args.ring,
        payload: 12,
        full: if args.wait { WhenFull::Wait(Timeout::secs(10)) } else { WhenFull::Overwrite },
        formats: flood_lines::TABLE,
        ..Settings::new(kernels.warps())
    };
    let (rings, reader) = kernels.rings(settings)?;
    let mut watch = watch(reader, settings.formats, &args.device)?;
    let collector = if args.collect {
        let cannot = |error| Error::Address("127.0.0.1:0".to_owned(), error);
        let addr = watch.serve("127.0.0.1:0").map_err(cannot)?;
        let stream = TcpStream::connect(addr).map_err(cannot)?;
        Some(std::thread::spawn(move || collect(stream, || false, |_| {})))
    } else {
        None
    };
    let watching = watch.start().map_err(Error::Thread)?;
    let started = Instant::now();
    let kernel = kernels.flood(rings, args.what.write(), args.count)?;
    while !kernel.wait(LOOKS)? {
        if interrupt.asked() {
            kernel.cancel();
        }
    }
    let (_rings, times) = kernel.finish(FinishPolicy::Close)?;
    let times: Vec<u64> = rows::<1>(&times, kernels.warps() as usize)?.into_iter().map(|[ns]| ns).collect();
    let found = watching.stop();
    let took = started.elapsed();
    let lanes = if args.what == What::Lanes { u64::from(kernels.lanes()) } else { 1 };
    let written =
        if args.what == What::Nothing { 0 } else { args.count * lanes * u64::from(kernels.warps()) };
    let slowest = times.iter().copied().max().unwrap_or(0);
    let mean = times.iter().sum::<u64>() as f64 / times.len().max(1) as f64 / args.count.max(1) as f64;
    let per_second = |count: u64, ns: u64| count as f64 / ns.max(1) as f64 * 1e9;
    print(&format_args!(
        "{}: {} warps, {:?}: {mean:.1} ns a call; {:.1} million records/s, {:.3} GB/s written\n",
        kernels.device_name(),
        kernels.warps(),
        args.what,
        per_second(written, slowest) / 1e6,
        per_second(written * RECORD, slowest) / 1e9,
    ));
    let ns = took.as_nanos() as u64;
    print(&format_args!(
        "{} read, {} lost, of {written}; {:.3} GB/s read\n",
        found.records,
        found.lost(),
        per_second(found.records * RECORD, ns) / 1e9
    ));
    if let Some(Ok(collected)) = collector.map(std::thread::JoinHandle::join) {
        let Collected { records, bytes, lost, left_out, took } = collected?;
        let rate = bytes as f64 / took.as_secs_f64().max(1e-9) / 1e9;
        print(&format_args!(
            "the collector has {records} records, {rate:.3} GB/s; {lost} lost, {left_out} left out\n"
        ));
        if records + left_out != found.records {
            return Err(Error::Differs(format!(
                "{records} collected and {left_out} left out, of {}",
                found.records
            )));
        }
    }
    kernels.close();
    if found.records + found.lost() != written {
        return Err(Error::Differs(format!(
            "{} read and {} lost, of {written}",
            found.records,
            found.lost()
        )));
    }
    Ok(())
}
