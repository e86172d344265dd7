//! Kernels that do not fit together are refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gpunet_cuda::CoResidencyError;
use gpunet_region::PinnedRegion;

use crate::support::{kernels, on_gpu, spec, start_waiting};

#[test]
fn what_fits_is_accepted_and_one_block_more_is_refused() {
    on_gpu!(device);
    let wait = kernels(&device).function("wait_for_host").expect("it");
    let threads = wait.attributes().max_threads_per_block;
    let full = device.multiprocessors() * wait.occupancy(threads, 0).expect("occupancy");
    println!("{} blocks of {threads} threads fit", full);
    assert_eq!(device.check_co_resident(&[spec(&wait, full, threads, vec![])]), Ok(()));
    match device.check_co_resident(&[spec(&wait, full + 1, threads, vec![])]) {
        Err(CoResidencyError::NotCoResident(refused)) => {
            println!("{refused}");
            assert_eq!(refused.blocks_that_fit, u64::from(full));
        }
        other => panic!("{other:?}"),
    }
    assert!(
        device.check_co_resident(&[spec(&wait, full, threads, vec![]), spec(&wait, 1, 32, vec![])]).is_err()
    );
}

#[test]
fn a_running_launch_takes_its_multiprocessors() {
    on_gpu!(device);
    let wait = kernels(&device).function("wait_for_host").expect("it");
    let region = PinnedRegion::create("words", 4096).expect("a region");
    let words = device.register(Arc::clone(&region)).expect("a registration");
    let threads = wait.attributes().max_threads_per_block;
    let full = device.multiprocessors() * wait.occupancy(threads, 0).expect("occupancy");
    let all = [spec(&wait, full, threads, vec![])];

    let launch = start_waiting(&wait, 1, 32, &words);
    let refused = device.check_co_resident(&all);
    // SAFETY: the page's first word; CPU and GPU access it with atomic loads and stores only.
    unsafe { AtomicU64::from_ptr(region.base().as_ptr().cast()) }.store(1, Ordering::Release);
    launch.wait().expect("no fault");
    match refused {
        Err(CoResidencyError::NotCoResident(refused)) => assert_eq!(refused.sms_running, 1, "{refused}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(device.check_co_resident(&all), Ok(()));
}
