//! Streams on the stand-in: order, waits, what counts as running, and what is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gpunet_region::PinnedRegion;

use super::driver::Fake;
use super::{function, launch, soon, spec};
use crate::driver::raw::constants::DEVICE_CAN_USE_64_BIT_STREAM_MEM_OPS;
use crate::{
    CudaStream, Device, LaunchError, MemOp, NoStreamMemoryOperations, Registration, StreamError,
    StreamPriority,
};

/// A page of words that host and streams share.
struct Words {
    registration: Registration,
}

impl Words {
    fn new(device: &Device) -> Self {
        let region = PinnedRegion::create("words", 8192).expect("a region");
        Self { registration: device.register(region).expect("a registration") }
    }

    fn at(&self, index: usize) -> u64 {
        assert!(index < 1024);
        self.registration.device_ptr() + 8 * index as u64
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < 1024);
        let base = self.registration.region().base().as_ptr().cast::<u64>();
        // SAFETY: within the region and aligned; all access is atomic, but for copies, whose words
        // nothing accesses meanwhile.
        unsafe { AtomicU64::from_ptr(base.wrapping_add(index)) }
    }

    fn set(&self, index: usize, value: u64) {
        // Release: pairs with the stand-in's Acquire load of a word that a stream waits for.
        self.word(index).store(value, Ordering::Release);
    }

    fn get(&self, index: usize) -> u64 {
        // Acquire: pairs with the store of the stand-in's thread.
        self.word(index).load(Ordering::Acquire)
    }
}

fn device(fake: &Fake) -> Device {
    fake.cuda().device(0).expect("a device")
}

fn stream(device: &Device) -> CudaStream {
    device.create_stream(StreamPriority::Normal).expect("a stream")
}

fn borrow(device: &Device, stream: *mut std::ffi::c_void) -> Result<CudaStream, StreamError> {
    // SAFETY: a stream of this driver, which lives until the test ends and is captured by the test
    // only.
    unsafe { device.borrow_stream(stream) }
}

fn wait(stream: &CudaStream, words: &Words, index: usize, value: u64) {
    // SAFETY: a word of the page, which streams and atomic accesses use.
    unsafe { stream.wait_value_geq(words.at(index), value) }.expect("a wait");
}

fn write(stream: &CudaStream, words: &Words, index: usize, value: u64) {
    // SAFETY: as in `wait`.
    unsafe { stream.write_value(words.at(index), value) }.expect("a write");
}

#[test]
fn operations_happen_in_order_and_nothing_passes_a_wait() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    let buffer = device.alloc(64).expect("memory");
    let seen = Arc::new(Mutex::new(Vec::new()));
    words.set(4, 77);
    write(&stream, &words, 1, 1);
    wait(&stream, &words, 0, 5);
    // SAFETY: words of the page and 8 bytes of a buffer.
    unsafe { stream.copy(buffer.ptr(), words.at(4), 8) }.expect("a copy");
    // SAFETY: as above.
    unsafe { stream.copy(words.at(5), buffer.ptr(), 8) }.expect("a copy");
    let (note, copied) = (Arc::clone(&seen), words.at(5));
    stream
        .host_function(move || {
            // SAFETY: a word of the page, which stays registered until the stream is idle; the copy
            // before has ended.
            let copied = unsafe { std::ptr::with_exposed_provenance::<u64>(copied as usize).read() };
            note.lock().expect("no panic").push(copied);
        })
        .expect("a call");
    write(&stream, &words, 2, 2);

    assert!(soon(|| words.get(1) == 1));
    words.set(0, 4);
    assert_eq!(stream.is_idle(), Ok(false));
    assert_eq!((words.get(2), words.get(5)), (0, 0));
    words.set(0, 5);
    stream.synchronize().expect("no fault");
    assert_eq!((words.get(2), words.get(5)), (2, 77));
    assert_eq!(*seen.lock().expect("no panic"), [77]);
    assert_eq!(stream.is_idle(), Ok(true));
}

#[test]
fn a_wait_compares_signed_and_cyclic() {
    let fake = Fake::new();
    let device = device(&fake);
    let words = Words::new(&device);
    let (end, err, top) = (1 << 62, 1 << 61, 1 << 63);
    for (index, (before, reached, value)) in [
        (99, end, 100),
        (top | 100, err, 100),
        (top | end | 100, end | err, 100),
        (u64::MAX - 1, 3, u64::MAX),
        // Half a turn ahead is behind, and one less is ahead.
        (top | 100, top | 99, 100),
    ]
    .into_iter()
    .enumerate()
    {
        let (waiting, other, done) = (stream(&device), stream(&device), 100 + index);
        words.set(index, before);
        wait(&waiting, &words, index, value);
        write(&waiting, &words, done, 1);
        // The stand-in has looked at the first stream, too, before it carries out what is on the
        // later one.
        write(&other, &words, 50, 1);
        other.synchronize().expect("no fault");
        assert_eq!((waiting.is_idle(), words.get(done)), (Ok(false), 0), "{before:#x} is behind {value:#x}");
        words.set(index, reached);
        waiting.synchronize().expect("no fault");
        assert_eq!(words.get(done), 1);
    }
}

#[test]
fn a_stream_goes_on_while_another_waits_and_can_end_its_wait() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, waiting) = (Words::new(&device), stream(&device));
    let rescue = device.create_stream(StreamPriority::Highest).expect("a stream");
    wait(&waiting, &words, 0, 1);
    write(&rescue, &words, 1, 1);
    rescue.synchronize().expect("no fault");
    assert_eq!(waiting.is_idle(), Ok(false));
    write(&rescue, &words, 0, 1);
    waiting.synchronize().expect("no fault");
}

#[test]
fn a_long_batch_is_split_and_stays_in_order() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    let mut operations = vec![MemOp::WaitGeq { address: words.at(0), value: 1 }];
    operations.extend((1..600).flat_map(|index| {
        let last = MemOp::WaitGeq { address: words.at(index - 1), value: 1 };
        [last, MemOp::Write { address: words.at(index), value: 1 }]
    }));
    // SAFETY: words of the page, which streams and atomic accesses use.
    unsafe { stream.batch(&operations) }.expect("a batch");
    // SAFETY: nothing.
    unsafe { stream.batch(&[]) }.expect("nothing");
    assert_eq!(fake.events(), ["batch"; 5], "1,199 operations, 255 at a time");
    assert_eq!((stream.is_idle(), words.get(1)), (Ok(false), 0));
    words.set(0, 1);
    stream.synchronize().expect("no fault");
    assert!((0..600).all(|index| words.get(index) == 1));
}

#[test]
fn default_streams_and_streams_of_other_contexts_are_refused_in_words() {
    let fake = Fake::new();
    let device = device(&fake);
    let default = |number| borrow(&device, std::ptr::without_provenance_mut(number)).err();
    assert_eq!(default(0), Some(StreamError::LegacyDefaultStream));
    assert_eq!(default(1), Some(StreamError::LegacyDefaultStream));
    assert_eq!(default(2), Some(StreamError::PerThreadDefaultStream));
    assert_eq!(borrow(&device, fake.stream_elsewhere()).err(), Some(StreamError::OtherContext));
    for refused in [StreamError::LegacyDefaultStream, StreamError::PerThreadDefaultStream] {
        assert!(refused.to_string().contains("pass a stream made with CU_STREAM_NON_BLOCKING"), "{refused}");
    }
}

#[test]
fn a_borrowed_stream_works_on_every_thread_and_is_not_destroyed() {
    let fake = Fake::new();
    let device = device(&fake);
    let words = Words::new(&device);
    let made_before = fake.streams_and_events();
    let stream = borrow(&device, fake.stream_of(&device)).expect("of this context");
    assert_eq!(fake.current_context(), None);
    write(&stream, &words, 0, 1);
    assert_eq!(fake.current_context(), None, "the context stayed current");
    std::thread::scope(|scope| {
        scope.spawn(|| write(&stream, &words, 1, 1));
    });
    stream.synchronize().expect("no fault");
    assert_eq!((words.get(0), words.get(1)), (1, 1));
    drop(stream);
    let (streams, events) = (made_before.0 + 1, made_before.1);
    assert!(soon(|| fake.streams_and_events() == (streams, events)), "{:?}", fake.streams_and_events());
}

#[test]
fn nothing_is_released_while_a_stream_waits() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    wait(&stream, &words, 0, 1);
    drop(device.alloc(64).expect("memory"));
    // Each call gives the agent an occasion to release.
    for _ in 0..10 {
        drop(device.alloc(64).expect("memory"));
        assert_eq!(stream.is_idle(), Ok(false));
    }
    assert_eq!(fake.events(), Vec::<&str>::new());
    words.set(0, 1);
    assert!(soon(|| stream.is_idle() == Ok(true)));
    assert!(soon(|| fake.events() == ["free"; 11]));

    // And so the next time.
    wait(&stream, &words, 0, 2);
    drop(device.alloc(64).expect("memory"));
    drop(device.alloc(64).expect("memory"));
    assert_eq!(fake.events().len(), 11);
    words.set(0, 2);
    stream.synchronize().expect("no fault");
    assert!(soon(|| fake.events().len() == 13));
}

#[test]
fn a_dropped_stream_counts_until_its_work_is_done_and_is_then_destroyed() {
    let fake = Fake::new();
    let device = device(&fake);
    let words = Words::new(&device);
    let made_before = fake.streams_and_events();
    let (own, theirs) = (stream(&device), fake.stream_of(&device));
    let borrowed = borrow(&device, theirs).expect("of this context");
    wait(&own, &words, 0, 1);
    wait(&borrowed, &words, 1, 1);
    write(&borrowed, &words, 2, 1);
    drop((own, borrowed));
    for _ in 0..10 {
        drop(device.alloc(64).expect("memory"));
    }
    assert_eq!(fake.events(), Vec::<&str>::new());
    words.set(0, 1);
    drop(device.alloc(64).expect("memory"));
    assert_eq!(fake.events(), Vec::<&str>::new(), "the borrowed one still waits");
    words.set(1, 1);
    assert!(soon(|| fake.events() == ["free"; 11]));
    assert_eq!(words.get(2), 1);
    let left = (made_before.0 + 1, made_before.1);
    assert_eq!(fake.streams_and_events(), left, "all but the program's own stream are gone");
}

#[test]
fn the_last_handle_waits_for_dropped_streams() {
    let fake = Fake::new();
    let device = device(&fake);
    let words = Words::new(&device);
    let stream = stream(&device);
    wait(&stream, &words, 0, 1);
    let region = Arc::clone(words.registration.region());
    drop((stream, words));
    std::thread::scope(|scope| {
        let dropped = scope.spawn(move || drop(device));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!dropped.is_finished(), "the drop did not wait for the stream");
        assert!(!fake.events().contains(&"unregister"), "{:?}", fake.events());
        // SAFETY: the region's first word, to which all access is atomic.
        unsafe { AtomicU64::from_ptr(region.base().as_ptr().cast()) }.store(1, Ordering::Release);
    });
    assert_eq!(fake.events(), ["unregister", "free", "release context"], "the second is the scratch memory");
}

#[test]
fn a_kernel_whose_stack_has_no_room_is_refused_while_a_stream_waits() {
    let fake = Fake::before_12_4();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    let module = device.load_module("ptx").expect("the driver takes any text");
    wait(&stream, &words, 0, 1);
    let deep = module.function("deep").expect("any name");
    // SAFETY: no kernel exists.
    let refused = unsafe { device.launch(&[spec(&deep, 1)]) }.expect_err("no room");
    assert!(matches!(refused, LaunchError::LocalMemory { .. }), "{refused}");
    words.set(0, 1);
    stream.synchronize().expect("no fault");
    drop(launch(&device, &deep, 1));
    fake.end_kernels();
}

#[test]
fn nothing_is_captured_and_no_capture_is_broken() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, theirs) = (Words::new(&device), fake.stream_of(&device));
    let stream = borrow(&device, theirs).expect("of this context");
    assert_eq!(stream.is_capturing(), Ok(false));
    fake.capture(theirs, true);
    assert_eq!(stream.is_capturing(), Ok(true));
    let (address, capturing) = (words.at(0), Err(StreamError::Capturing));
    let op = MemOp::Write { address, value: 1 };
    // SAFETY: refused; and a word of the page.
    assert_eq!(unsafe { stream.write_value(address, 1) }, capturing);
    // SAFETY: as above.
    assert_eq!(unsafe { stream.wait_value_geq(address, 1) }, capturing);
    // SAFETY: as above.
    assert_eq!(unsafe { stream.batch(&[op]) }, capturing);
    // SAFETY: as above.
    assert_eq!(unsafe { stream.copy(address, words.at(1), 8) }, capturing);
    assert_eq!(stream.host_function(|| panic!("called")), capturing);
    assert_eq!(stream.synchronize(), capturing);
    assert_eq!(stream.is_idle().err(), capturing.err());
    // Nothing was enqueued, so nothing counts, and the drop is like any other.
    drop(stream);
    drop(device.alloc(64).expect("memory"));
    assert!(soon(|| fake.events() == ["free"]), "{:?}", fake.events());
}

#[test]
fn a_panic_of_a_host_function_ends_there() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    // Not `panic!`, whose message would be printed.
    stream.host_function(|| std::panic::resume_unwind(Box::new(()))).expect("a call");
    write(&stream, &words, 0, 1);
    stream.synchronize().expect("no fault");
    assert_eq!(words.get(0), 1);
}

#[test]
fn a_host_function_that_is_not_enqueued_is_dropped() {
    let fake = Fake::new();
    let device = device(&fake);
    let theirs = fake.stream_of(&device);
    let stream = borrow(&device, theirs).expect("of this context");
    let held = Arc::new(());
    let (inner, kept) = (stream.clone(), Arc::clone(&held));
    let (answer, answered) = std::sync::mpsc::channel();
    // The driver refuses calls in a host function; the clone is not dropped there.
    let outer = move || {
        let call = inner.host_function(move || drop(kept));
        answer.send((call, inner)).expect("the test waits");
    };
    stream.host_function(outer).expect("a call");
    let (refused, inner) = answered.recv().expect("an answer");
    assert!(matches!(&refused, Err(StreamError::Cuda(error)) if error.code == 800), "{refused:?}");
    assert_eq!(Arc::strong_count(&held), 1);
    drop(inner);
}

#[test]
fn half_a_word_is_written_and_the_other_half_left() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    words.set(0, 0x0123_4567_89ab_cdef);
    // SAFETY: halves of words of the page, which streams and atomic accesses use.
    unsafe { stream.write_value_32(words.at(0) + 4, 0xffff_0000) }.expect("a write");
    // SAFETY: as above.
    unsafe { stream.write_value_32(words.at(1), 7) }.expect("a write");
    stream.synchronize().expect("nothing waits");
    assert_eq!((words.get(0), words.get(1)), (0xffff_0000_89ab_cdef, 7));
}

#[test]
fn a_refused_operation_is_the_drivers_error() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    // SAFETY: refused: the address is no multiple of 8.
    let refused = unsafe { stream.write_value(words.at(0) + 4, 1) };
    assert!(
        matches!(&refused, Err(StreamError::Cuda(error)) if error.call == "cuStreamWriteValue64" && error.code == 1),
        "{refused:?}"
    );
    // SAFETY: refused: the address is no multiple of 4.
    let refused = unsafe { stream.write_value_32(words.at(0) + 2, 1) };
    assert!(
        matches!(&refused, Err(StreamError::Cuda(error)) if error.call == "cuStreamWriteValue32" && error.code == 1),
        "{refused:?}"
    );
    assert_eq!(stream.is_idle(), Ok(true));
}

#[test]
fn a_broken_context_ends_its_streams() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    wait(&stream, &words, 0, 1);
    fake.fault(700);
    let error = stream.is_idle().expect_err("an illegal address");
    assert!(matches!(&error, StreamError::Cuda(error) if error.code == 700), "{error}");
    drop((stream, words));
    drop(device);
    assert_eq!(fake.events().last(), Some(&"release context"));
}

#[test]
fn what_keeps_streams_from_waiting_is_named() {
    let answer = |fake: &Fake| device(fake).stream_memory_operations();
    let fake = Fake::new();
    assert_eq!(answer(&fake), Ok(()));
    fake.lack(DEVICE_CAN_USE_64_BIT_STREAM_MEM_OPS);
    assert_eq!(answer(&fake), Err(NoStreamMemoryOperations::NotSupported));
    drop(fake);
    let refused = answer(&Fake::in_environment(true, false)).expect_err("one connection");
    assert_eq!(refused, NoStreamMemoryOperations::OneConnection);
    assert!(refused.to_string().starts_with("CUDA_DEVICE_MAX_CONNECTIONS is 1"), "{refused}");
    let refused = answer(&Fake::in_environment(true, true)).expect_err("blocking launches");
    assert_eq!(refused, NoStreamMemoryOperations::LaunchBlocking);
    assert!(refused.to_string().starts_with("CUDA_LAUNCH_BLOCKING is set"), "{refused}");
}

#[test]
fn an_old_driver_is_refused_with_the_missing_call() {
    let fake = Fake::before_11_7();
    let device = device(&fake);
    let text = "the CUDA driver 11.6 has no cuStreamWaitValue64_v2";
    let refused = device.stream_memory_operations().expect_err("an old driver");
    assert!(refused.to_string().starts_with(text), "{refused}");
    let refused = device.create_stream(StreamPriority::Normal).expect_err("an old driver");
    assert!(refused.to_string().starts_with(text), "{refused}");
    let refused = borrow(&device, fake.stream_of(&device)).expect_err("an old driver");
    assert!(refused.to_string().starts_with(text), "{refused}");
    // Everything else works.
    drop(device.alloc(64).expect("memory"));
    assert!(soon(|| fake.events() == ["free"]));
}

#[test]
fn a_kernel_and_a_stream_both_hold_releases() {
    let fake = Fake::new();
    let device = device(&fake);
    let (words, stream) = (Words::new(&device), stream(&device));
    let running = launch(&device, &function(&device), 1);
    wait(&stream, &words, 0, 1);
    drop(device.alloc(64).expect("memory"));
    fake.end_kernels();
    running.wait().expect("no fault");
    assert!(!fake.events().contains(&"free"));
    words.set(0, 1);
    stream.synchronize().expect("no fault");
    assert!(soon(|| fake.events().contains(&"free")));
}
