//! A collector: any program could be one.

use crate::args::CollectArgs;
use crate::error::Error;
use gpunet_app::cli::print;
use gpunet_app::interrupt::Interrupt;
use gpunet_records_host::Record;
use gpunet_records_host::wire::{Decoder, Frame, Reason};
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How often a collector to which nothing comes looks whether it is to end.
const LOOKS: Duration = Duration::from_millis(100);

/// What has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Collected {
    /// Records.
    pub records: u64,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Records that never left the rings.
    pub lost: u64,
    /// Records that were left out because the collector was too slow.
    pub left_out: u64,
    /// From the first byte to the last.
    pub took: Duration,
}

/// Shows what is served at an address.
pub fn run(args: &CollectArgs, interrupt: &Interrupt) -> Result<(), Error> {
    let cannot = |error| Error::Address(args.addr.clone(), error);
    let stream = TcpStream::connect(args.addr.as_str()).map_err(cannot)?;
    let show = |record: &Record<'_>| {
        if !args.count {
            print(&format_args!("{record}\n"));
        }
    };
    let collected = collect(stream, || interrupt.asked(), show)?;
    let Collected { records, bytes, lost, left_out, took } = collected;
    let rate = bytes as f64 / took.as_secs_f64().max(1e-9) / 1e9;
    print(&format_args!(
        "{records} records, {bytes} bytes, {rate:.3} GB/s; {lost} lost, {left_out} left out\n"
    ));
    Ok(())
}

/// Reads until the stream ends.
pub fn collect(
    mut stream: TcpStream,
    is_over: impl Fn() -> bool,
    mut each: impl FnMut(&Record<'_>),
) -> Result<Collected, Error> {
    let failed = |error| Error::Address("the collector's connection".to_owned(), error);
    stream.set_read_timeout(Some(LOOKS)).map_err(failed)?;
    let (mut decoder, mut piece) = (Decoder::new(), vec![0; 1 << 20]);
    let (mut collected, mut began) = (Collected::default(), None);
    while !is_over() {
        let len = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(error) => return Err(failed(error)),
        };
        let began = *began.get_or_insert_with(Instant::now);
        decoder.push(&piece[..len]);
        collected.bytes += len as u64;
        while let Some(frame) = decoder.next().map_err(Error::Wire)? {
            match frame {
                Frame::Record { ring, head, payload } => {
                    each(&Record { ring, number: collected.records, head, payload });
                    collected.records += 1;
                }
                Frame::Missing { reason: Reason::Rings, total } => collected.lost = total,
                Frame::Missing { reason: Reason::Collector, total } => collected.left_out = total,
                Frame::Missing { .. } => {}
            }
        }
        collected.took = began.elapsed();
    }
    Ok(collected)
}
