//! What network cards need of GPU memory.

use std::os::fd::AsRawFd;
use std::ptr;

use gpunet_cuda::{
    Device, DmaBuf, DmabufError, DmabufRoute, DriverVersion, FlushOptions, FlushScope, RdmaCallError,
};

use crate::support::{not_run, on_gpu, promptly};

const MIB: usize = 1 << 20;

#[test]
fn the_drivers_mmap_of_a_dmabuf_is_what_its_version_says() {
    on_gpu!(device);
    let buffer = device.alloc(2 * MIB).expect("memory");
    let Some(DmaBuf { fd, len, .. }) = exported(buffer.export_dmabuf()) else { return };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel picks the address.
    let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
    let error = std::io::Error::last_os_error();
    let works = at != libc::MAP_FAILED;
    if works {
        // SAFETY: mapped above, used by nobody.
        assert_eq!(unsafe { libc::munmap(at, len) }, 0);
    }
    let version = device.cuda().driver_version();
    println!(
        "CUDA {version}: mmap of a dma-buf {}",
        if works { "works".to_owned() } else { error.to_string() }
    );
    assert_eq!(works, version >= DriverVersion::new(13, 3), "the version does not tell");
}

#[test]
fn an_export_names_the_place_of_the_bytes_in_their_pages() {
    on_gpu!(device);
    let buffer = device.alloc(4 * MIB).expect("memory");
    let part = buffer.export_dmabuf_range(MIB + 100..MIB + 300, DmabufRoute::Default);
    if let Some(part) = exported(part) {
        assert_eq!((part.offset, part.len), (100, 200));
    }
    match buffer.export_dmabuf_range(0..4 * MIB, DmabufRoute::Pcie) {
        Ok(_) => println!("the path can be chosen here"),
        Err(error) => println!("the path cannot be chosen: {error}"),
    }
}

fn exported(result: Result<DmaBuf, DmabufError>) -> Option<DmaBuf> {
    match result {
        Ok(exported) => Some(exported),
        Err(DmabufError::Unsupported) => {
            not_run("a GPU with dma-buf export");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_flush_works_where_the_device_says_so() {
    on_gpu!(device);
    let rdma = device.rdma_attributes();
    println!("{rdma:?}");
    let flushed = promptly("flush", || device.flush_gpudirect_rdma_writes(FlushScope::Owner));
    if rdma.flush_options.is_some_and(FlushOptions::from_host) {
        flushed.expect("a flush");
        flush_all(&device);
    } else {
        println!("flush: {flushed:?}");
        assert!(flushed.is_err());
    }
}

fn flush_all(device: &Device) {
    match device.flush_gpudirect_rdma_writes(FlushScope::AllDevices) {
        Ok(()) => println!("flush to all devices works"),
        Err(RdmaCallError::Cuda(error)) => println!("flush to all devices: {error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn memory_that_a_card_writes_can_be_marked() {
    on_gpu!(device);
    let buffer = device.alloc(2 * MIB).expect("memory");
    buffer.sync_memops().expect("every GPU with unified addressing has it");
    device.write(&buffer, 0, &[1; 64]).expect("copies still work");
    let mut seen = [0; 64];
    device.read(&buffer, 0, &mut seen).expect("copies still work");
    assert_eq!(seen, [1; 64]);
}
