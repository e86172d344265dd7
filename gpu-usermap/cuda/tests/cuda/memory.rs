//! Allocation, copies, registration, export.

use std::fs;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::Arc;

use gpunet_cuda::{CopyError, Cuda, Device, DmaBuf, DmabufError};
use gpunet_region::PinnedRegion;

use crate::support::{kernels, not_run, on_gpu, spec, u32_param, u64_param};

#[test]
fn a_buffer_starts_as_zero_and_returns_what_was_written() {
    on_gpu!(device);
    // More than two staging chunks, and no multiple of one.
    let len = (2 << 20) + 12345;
    let buffer = device.alloc(len).expect("memory");
    let mut bytes = vec![0xff; len];
    device.read(&buffer, 0, &mut bytes).expect("a read");
    assert!(bytes.iter().all(|&byte| byte == 0));

    let pattern: Vec<u8> = (0..len - 7).map(|index| (index % 251) as u8).collect();
    device.write(&buffer, 5, &pattern).expect("a write");
    device.read(&buffer, 0, &mut bytes).expect("a read");
    assert_eq!(&bytes[..5], [0; 5]);
    assert!(bytes[5..len - 2] == pattern[..], "what was read is not what was written");
    assert_eq!(&bytes[len - 2..], [0; 2]);
}

#[test]
fn copies_beyond_the_end_are_refused() {
    on_gpu!(device);
    let buffer = device.alloc(100).expect("memory");
    let refused = device.write(&buffer, 96, &[0; 5]);
    assert_eq!(refused, Err(CopyError::OutOfBounds { offset: 96, len: 5, size: 100 }));
    assert!(matches!(device.read(&buffer, usize::MAX, &mut [0; 2]), Err(CopyError::OutOfBounds { .. })));
}

#[test]
fn impossible_allocations_are_errors_with_the_drivers_name() {
    on_gpu!(device);
    let error = device.alloc(1 << 50).expect_err("a petabyte");
    assert_eq!((error.call, error.name.as_str()), ("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY"));
    assert_eq!(device.alloc(0).expect_err("nothing").name, "CUDA_ERROR_INVALID_VALUE");
}

#[test]
fn a_kernel_writes_into_a_registered_region_and_the_cpu_sees_it() {
    on_gpu!(device);
    let region = PinnedRegion::create("cuda-test", 1 << 16).expect("a region");
    let registration = device.register(Arc::clone(&region)).expect("a registration");
    assert_ne!(registration.device_ptr(), 0);
    fill_and_check(&device, registration.device_ptr(), &region, 100);

    // A second registration beside the first, and the first one's end, disturb nothing.
    let second = device.register(Arc::clone(&region)).expect("a second registration");
    drop(registration);
    fill_and_check(&device, second.device_ptr(), &region, 9000);
}

fn fill_and_check(device: &Device, address: u64, region: &PinnedRegion, value: u32) {
    let fill = kernels(device).function("fill").expect("the kernel");
    let params = vec![u64_param(address), u32_param(value)];
    // SAFETY: 4 blocks of 256 threads write 4 KiB of a registered region of 64 KiB.
    let launch = unsafe { device.launch(&[spec(&fill, 4, 256, params)]) }.expect("a launch");
    launch.wait().expect("no fault");
    for index in [0, 1, 255, 256, 1023] {
        // SAFETY: in bounds and aligned; the kernel has ended, and nothing else writes the region.
        let word = unsafe { ptr::read_volatile(region.base().as_ptr().cast::<u32>().add(index)) };
        assert_eq!(word, value + index as u32);
    }
}

#[test]
fn gpu_memory_is_exported_as_a_dmabuf() {
    on_gpu!(device);
    let buffer = device.alloc(2 << 20).expect("memory");
    match buffer.export_dmabuf() {
        Ok(DmaBuf { fd, offset, len }) => {
            assert_eq!((offset, len), (0, 2 << 20), "2 MiB are whole pages");
            let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("a link");
            println!("dma-buf: {link:?}");
            assert!(link.to_string_lossy().contains("dmabuf"), "{link:?}");
        }
        Err(DmabufError::Unsupported) => not_run("a GPU with dma-buf export"),
        Err(error) => panic!("{error}"),
    }
    let odd = device.alloc(1000).expect("memory");
    match odd.export_dmabuf() {
        Ok(DmaBuf { offset, len, .. }) => {
            println!("the driver exports the pages around {len} bytes, which begin at {offset}");
            assert_eq!((offset as u64, len), (odd.ptr() % 4096, 1000));
        }
        Err(error) => {
            println!("{error}");
            assert!(
                matches!(error, DmabufError::NotWholePages { len: 1000, .. } | DmabufError::Unsupported),
                "{error}"
            );
        }
    }
}

#[test]
fn a_callers_own_context_is_used_and_left_alone() {
    on_gpu!(_device);
    let context = cudarc::driver::CudaContext::new(0).expect("cudarc's context");
    {
        let cuda = Cuda::load().expect("loaded");
        // SAFETY: cudarc's context outlives the device: it is dropped below.
        let device = unsafe { Device::from_raw_context(&cuda, context.cu_ctx().cast()) }.expect("a device");
        let buffer = device.alloc(4096).expect("memory");
        device.write(&buffer, 0, &[7; 16]).expect("a write");
        println!("{device:?}");
    }
    let stream = context.new_stream().expect("cudarc's context still works");
    assert_eq!(
        stream.clone_dtoh(&stream.clone_htod(&[1u8, 2, 3]).expect("a copy")).expect("a copy"),
        [1, 2, 3]
    );
}

#[test]
fn one_gpu_opened_twice_is_one_device() {
    on_gpu!(device);
    let again = device.cuda().device(0).expect("the same");
    let buffer = again.alloc(16).expect("memory");
    device.write(&buffer, 0, &[1]).expect("the same device");
    assert!(device.cuda().device(u32::MAX).is_err());
}
