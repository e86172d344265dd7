//! Export and flush on the stand-in, whose dma-bufs are memfds.

use super::driver::Fake;
use crate::{DmabufError, DmabufRoute, FlushScope, GpuBuffer, RdmaCallError};

fn buffer(fake: &Fake, len: usize) -> GpuBuffer {
    fake.cuda().device(0).expect("a device").alloc(len).expect("memory")
}

#[test]
fn an_export_says_where_in_its_pages_the_buffer_lies() {
    let fake = Fake::new();
    let buffer = buffer(&fake, 10_000);
    let exported = buffer.export_dmabuf().expect("the stand-in exports everything");
    assert_eq!((exported.offset as u64, exported.len), (buffer.ptr() % 4096, 10_000));
    let refused = buffer.export_dmabuf_range(0..4096, DmabufRoute::Pcie);
    assert_eq!(refused.err(), Some(DmabufError::RouteUnsupported));
}

#[test]
fn a_flush_reaches_the_driver_and_a_missing_call_is_named() {
    let fake = Fake::new();
    let buffer = buffer(&fake, 4096);
    buffer.device().flush_gpudirect_rdma_writes(FlushScope::Owner).expect("a flush");
    buffer.device().flush_gpudirect_rdma_writes(FlushScope::AllDevices).expect("a flush");
    assert_eq!(fake.events(), ["flush to owner", "flush to all"]);
    let missing = buffer.sync_memops().expect_err("the stand-in has no such call");
    assert!(
        matches!(missing, RdmaCallError::DriverTooOld { call: "cuPointerSetAttribute", .. }),
        "{missing}"
    );
}
