//! Streams that wait for words, write them, copy and call, on a real GPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use gpunet_cuda::{CudaStream, Device, MemOp, StreamError, StreamPriority};

use crate::support::{KERNEL_LIMIT, Words, kernels, not_run, on_gpu, promptly, start_waiting};

/// Words of a page, all of which are stored at the end: a test that fails leaves no stream behind
/// that waits for ever.
struct Shared(Words);

impl Shared {
    fn new(device: &Device) -> Self {
        Self(Words::new(device))
    }

    fn at(&self, index: usize) -> u64 {
        assert!(index < 512);
        self.0.registration.device_ptr() + 8 * index as u64
    }

    fn get(&self, index: usize) -> u64 {
        // Acquire: pairs with the stream's write, which has a fence.
        self.0.word(index).load(Ordering::Acquire)
    }

    fn set(&self, index: usize, value: u64) {
        // Release: pairs with the stream's wait.
        self.0.word(index).store(value, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for index in 0..512 {
            self.set(index, 1 << 62);
        }
    }
}

/// Makes a stream, or says that the test did not run.
fn stream(device: &Device, priority: StreamPriority) -> Option<CudaStream> {
    match device.stream_memory_operations() {
        Ok(()) => Some(device.create_stream(priority).expect("a stream")),
        Err(reason) => {
            not_run(&format!("stream memory operations ({reason})"));
            None
        }
    }
}

fn wait(stream: &CudaStream, address: u64, value: u64) {
    // SAFETY: a word of registered or GPU memory, whose release waits for the stream, and which is
    // accessed atomically.
    unsafe { stream.wait_value_geq(address, value) }.expect("a wait");
}

fn write(stream: &CudaStream, address: u64, value: u64) {
    // SAFETY: as in `wait`.
    unsafe { stream.write_value(address, value) }.expect("a write");
}

fn finish(stream: &CudaStream, what: &str) {
    let deadline = Instant::now() + KERNEL_LIMIT;
    while !stream.is_idle().expect("no fault") {
        assert!(Instant::now() < deadline, "{what}: the stream stands still");
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn operations_of_a_stream_happen_in_order() {
    on_gpu!(device);
    let Some(stream) = stream(&device, StreamPriority::Normal) else { return };
    let (words, buffer) = (Shared::new(&device), device.alloc(4096).expect("memory"));
    let called = Arc::new(AtomicBool::new(false));
    words.set(32, 77);
    write(&stream, words.at(8), 1);
    wait(&stream, words.at(0), 5);
    // SAFETY: 8 bytes of a buffer and of the page, whose releases wait for the stream.
    unsafe { stream.copy(buffer.ptr(), words.at(32), 8) }.expect("a copy");
    // SAFETY: as above.
    unsafe { stream.copy(words.at(40), buffer.ptr(), 8) }.expect("a copy");
    let call = Arc::clone(&called);
    stream.host_function(move || call.store(true, Ordering::Release)).expect("a call");
    write(&stream, words.at(16), 2);

    let deadline = Instant::now() + KERNEL_LIMIT;
    while words.get(8) == 0 {
        assert!(Instant::now() < deadline, "what is before the wait does not happen");
    }
    words.set(0, 4);
    assert!(!stream.is_idle().expect("no fault"), "4 is not 5");
    assert_eq!((words.get(16), words.get(40)), (0, 0));
    assert!(!called.load(Ordering::Acquire));
    words.set(0, 5);
    promptly("synchronize", || stream.synchronize()).expect("no fault");
    assert_eq!((words.get(16), words.get(40)), (2, 77));
    assert!(called.load(Ordering::Acquire));
}

#[test]
fn a_stream_waits_for_another_and_memory_says_where_it_is() {
    on_gpu!(device);
    let Some(first) = stream(&device, StreamPriority::Normal) else { return };
    let second = device.create_stream(StreamPriority::Normal).expect("a stream");
    let words = Shared::new(&device);
    let buffer = device.alloc_uninit(4096).expect("memory");
    assert_eq!(device.location_of(buffer.ptr() + 100), Ok(device.ordinal()));
    wait(&first, words.at(0), 1);
    second.wait_for(&first).expect("a wait");
    let event = second.record().expect("an event");
    write(&second, words.at(8), 1);
    wait(&second, words.at(16), 1);
    assert!(!event.has_passed().expect("no fault"));
    assert_eq!(second.is_device_busy_otherwise(), Ok(true), "the first one waits");
    assert_eq!(words.get(8), 0);
    words.set(0, 1);
    let deadline = Instant::now() + KERNEL_LIMIT;
    while !event.has_passed().expect("no fault") {
        assert!(Instant::now() < deadline, "the event does not pass");
    }
    finish(&first, "the first");
    assert_eq!(second.is_device_busy_otherwise(), Ok(false), "only itself");
    assert_eq!(device.is_busy(), Ok(true));
    words.set(16, 1);
    finish(&second, "the second");
    assert_eq!((words.get(8), device.is_busy()), (1, Ok(false)));
}

#[test]
fn everybody_ends_a_pending_wait() {
    on_gpu!(device);
    let Some(waiting) = stream(&device, StreamPriority::Normal) else { return };
    let other = device.create_stream(StreamPriority::Highest).expect("a stream");
    let (words, buffer) = (Shared::new(&device), device.alloc(4096).expect("memory"));
    let wait_for_host = kernels(&device).function("wait_for_host").expect("it");
    words.set(0, 1);
    // The first kernel of a context waits for streams that wait.
    start_waiting(&wait_for_host, 1, 32, &words.0.registration).wait().expect("no fault");
    words.set(8, 0);

    wait(&waiting, words.at(64), 1);
    assert!(!waiting.is_idle().expect("no fault"));
    words.set(64, 1);
    finish(&waiting, "a store of the CPU");

    wait(&waiting, words.at(8), 1);
    let launch = start_waiting(&wait_for_host, 1, 32, &words.0.registration);
    finish(&waiting, "a store of a kernel");
    launch.wait().expect("no fault");

    for (what, address) in [("pinned memory", words.at(72)), ("GPU memory", buffer.ptr())] {
        wait(&waiting, address, 1);
        assert!(!waiting.is_idle().expect("no fault"));
        write(&other, address, 1);
        finish(&waiting, &format!("another stream's write to {what}"));
    }
    for (what, address) in [("pinned memory", words.at(80)), ("GPU memory", buffer.ptr() + 64)] {
        wait(&waiting, address, 1);
        assert!(!waiting.is_idle().expect("no fault"));
        // SAFETY: a word that is 1, and the word that is waited for; both stay mapped while the
        // streams count.
        unsafe { other.copy(address, words.at(64), 8) }.expect("a copy");
        finish(&waiting, &format!("another stream's copy to {what}"));
    }
    wait(&waiting, buffer.ptr() + 128, 1);
    device.write(&buffer, 128, &1_u64.to_ne_bytes()).expect("a write");
    finish(&waiting, "the device's own copy");
}

#[test]
fn a_wait_compares_signed_and_cyclic() {
    on_gpu!(device);
    let Some(stream) = stream(&device, StreamPriority::Normal) else { return };
    let words = Shared::new(&device);
    let (end, err, top) = (1 << 62, 1 << 61, 1 << 63);
    for (index, (before, reached, value)) in
        [(99, end, 100), (top | 100, err, 100), (top | 100, top | 99, 100), (u64::MAX - 1, 3, u64::MAX)]
            .into_iter()
            .enumerate()
    {
        words.set(8 * index, before);
        wait(&stream, words.at(8 * index), value);
        write(&stream, words.at(64 + index), 1);
        // What is enqueued is begun within a fraction of that.
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(words.get(64 + index), 0, "{before:#x} is behind {value:#x}");
        words.set(8 * index, reached);
        finish(&stream, &format!("{reached:#x} has reached {value:#x}"));
    }
}

#[test]
fn a_batch_of_more_than_the_driver_takes_is_in_order() {
    on_gpu!(device);
    let Some(stream) = stream(&device, StreamPriority::Normal) else { return };
    let words = Shared::new(&device);
    let operations: Vec<MemOp> = (1..400)
        .flat_map(|index| {
            let last = MemOp::WaitGeq { address: words.at(index - 1), value: 1 };
            [last, MemOp::Write { address: words.at(index), value: 1 }]
        })
        .collect();
    // SAFETY: words of the page, whose release waits for the stream.
    promptly("batch", || unsafe { stream.batch(&operations) }).expect("a batch");
    assert!(!stream.is_idle().expect("no fault"));
    assert_eq!(words.get(1), 0);
    words.set(0, 1);
    finish(&stream, "a batch");
    assert!((0..400).all(|index| words.get(index) == 1));
}

#[test]
fn an_urgent_stream_goes_on_while_others_wait() {
    on_gpu!(device);
    let Some(rescue) = stream(&device, StreamPriority::Highest) else { return };
    let words = Shared::new(&device);
    // Streams that share a connection hold each other up.
    let waiting: Vec<CudaStream> = (0..device.stream_connections() / 2 - 1)
        .map(|_| {
            let stream = device.create_stream(StreamPriority::Normal).expect("a stream");
            wait(&stream, words.at(0), 1);
            stream
        })
        .collect();
    for turn in 1..=10 {
        write(&rescue, words.at(8), turn);
        finish(&rescue, "an urgent write beside streams that wait");
        assert_eq!(words.get(8), turn);
    }
    assert!(waiting.iter().all(|stream| !stream.is_idle().expect("no fault")));
    write(&rescue, words.at(0), 1);
    for stream in &waiting {
        finish(stream, "a wait that the urgent stream ended");
    }
}

#[test]
fn a_full_stream_holds_up_only_who_fills_it() {
    on_gpu!(device);
    let Some(stream) = stream(&device, StreamPriority::Normal) else { return };
    let rescue = device.create_stream(StreamPriority::Highest).expect("a stream");
    let words = Shared::new(&device);
    wait(&stream, words.at(0), 1);
    std::thread::scope(|scope| {
        let filling = scope.spawn(|| {
            for turn in 1..=20_000 {
                write(&stream, words.at(8), turn);
            }
        });
        std::thread::sleep(Duration::from_millis(200));
        println!("20,000 writes behind a wait were enqueued at once: {}", filling.is_finished());
        let urgent = scope.spawn(|| write(&rescue, words.at(0), 1));
        let deadline = Instant::now() + KERNEL_LIMIT;
        while words.get(0) == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let rescued = words.get(0) == 1;
        words.set(0, 1);
        filling.join().expect("no fault");
        urgent.join().expect("no fault");
        assert!(rescued, "another stream's write waits for room in the full one");
    });
    finish(&stream, "the full stream");
    assert_eq!(words.get(8), 20_000);
}

#[test]
fn nothing_is_given_back_while_a_stream_waits_and_calls_return() {
    on_gpu!(device);
    let Some(stream) = stream(&device, StreamPriority::Normal) else { return };
    let (words, dropped) = (Shared::new(&device), device.alloc(1 << 20).expect("memory"));
    wait(&stream, words.at(0), 1);
    // SAFETY: both are mapped until the stream is idle, although the buffer's last handle is
    // dropped now.
    unsafe { stream.copy(words.at(8), dropped.ptr(), 8) }.expect("a copy");
    let unused = Words::new(&device);
    promptly("drop", || drop((dropped, unused)));
    let buffer = promptly("alloc", || device.alloc(4096)).expect("memory");
    promptly("write", || device.write(&buffer, 0, &[1; 64])).expect("a write");
    promptly("register", || Words::new(&device));
    promptly("create_stream", || device.create_stream(StreamPriority::Normal)).expect("a stream");
    assert!(!stream.is_idle().expect("no fault"));
    // What is dropped with work left is waited for by the device.
    drop(stream);
    promptly("alloc", || device.alloc(4096)).expect("memory");
    words.set(8, 1);
    words.set(0, 1);
    let deadline = Instant::now() + KERNEL_LIMIT;
    while words.get(8) != 0 {
        assert!(Instant::now() < deadline, "the copy of zeros does not come");
    }
}

#[test]
fn a_callers_stream_is_used_and_its_capture_detected_and_left_alone() {
    on_gpu!(device);
    let Some(own) = stream(&device, StreamPriority::Normal) else { return };
    let words = Shared::new(&device);
    let context = cudarc::driver::CudaContext::new(0).expect("cudarc's context");
    let theirs = context.new_stream().expect("a stream");
    // SAFETY: it outlives `stream`, and is captured by this test, between calls.
    let stream = unsafe { device.borrow_stream(theirs.cu_stream().cast()) }.expect("of this context");
    write(&stream, words.at(0), 1);
    finish(&stream, "a borrowed stream");
    assert_eq!(words.get(0), 1);

    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    ] {
        assert_eq!(stream.is_capturing(), Ok(false));
        theirs.begin_capture(mode).expect("a capture");
        assert_eq!(stream.is_capturing(), Ok(true));
        // SAFETY: refused.
        assert_eq!(unsafe { stream.write_value(words.at(0), 2) }, Err(StreamError::Capturing));
        assert_eq!(stream.is_idle(), Err(StreamError::Capturing));
        // The device's other calls belong to no capture.
        write(&own, words.at(8), 1);
        finish(&own, "another stream beside a capture");
        let buffer = device.alloc(4096).expect("memory beside a capture");
        device.write(&buffer, 0, &[1; 64]).expect("a write beside a capture");
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let ended = theirs.end_capture(flags);
        assert!(ended.is_ok(), "{mode:?}: the capture was broken: {:?}", ended.err());
    }
    assert_eq!(words.get(0), 1);
    write(&stream, words.at(0), 3);
    finish(&stream, "the stream after its capture");
}

#[test]
fn default_streams_and_those_of_other_gpus_are_refused() {
    on_gpu!(device);
    let Some(_) = stream(&device, StreamPriority::Normal) else { return };
    // SAFETY: the legacy default stream.
    let legacy = unsafe { device.borrow_stream(std::ptr::null_mut()) };
    assert!(matches!(legacy, Err(StreamError::LegacyDefaultStream)), "{legacy:?}");
    // SAFETY: the per-thread default stream.
    let per_thread = unsafe { device.borrow_stream(std::ptr::without_provenance_mut(2)) };
    assert!(matches!(per_thread, Err(StreamError::PerThreadDefaultStream)), "{per_thread:?}");
    if device.cuda().device_count().expect("a count") < 2 {
        not_run("two GPUs (its last part)");
        return;
    }
    let context = cudarc::driver::CudaContext::new(1).expect("cudarc's context");
    let theirs = context.new_stream().expect("a stream");
    // SAFETY: it outlives the call, which is refused.
    let elsewhere = unsafe { device.borrow_stream(theirs.cu_stream().cast()) };
    assert!(matches!(elsewhere, Err(StreamError::OtherContext)), "{elsewhere:?}");
}
