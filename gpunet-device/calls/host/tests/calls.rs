//! Kernels of the CPU device call functions of this program.

use gpunet_calls::{Caller, Calls, Failure, Function, Name, connect, number_of, plain, resolve};
use gpunet_calls_host::{CallServer, Error, Functions, Registered, Reply, Settings};
use gpunet_device::Error as Errno;
use gpunet_proxy::device::{Buffer, Group, Kernel, Net, Timeout};
use gpunet_proxy::{Attachment, Config, FinishPolicy, Launch, embed};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

const LONG: Timeout = Timeout::secs(60);

plain! {
    struct Question {
        block: u32,
        round: u32,
        value: u64,
    }
    struct Answer {
        sum: u64,
        text: [u8; 120],
    }
}

const ASK: Function<Question, Answer> = Function::new(1);
const ADD: Function<[u32; 2], u32> = Function::new(2);
const PANIC: Function<u32, u32> = Function::new(3);
const REFUSE: Function<(), u32> = Function::new(4);
const LATER: Function<u32, u32> = Function::new(5);
const BLOCK: Function<u32, u32> = Function::new(6);
const COUNT: Function<u32, ()> = Function::new(7);
/// Reverses bytes, and refuses none.
const REVERSE: u32 = number_of("reverse");
/// [`REVERSE`] of as many bytes as a type has.
const REVERSE_WORDS: Function<[u32; 2], [u32; 2]> = Function::new(REVERSE);
/// Nobody registers it.
const MISSING: Function<u32, u32> = Function::new(8);
/// [`ADD`] as another program might have it.
const OTHER_ADD: Function<u32, u32> = Function::new(2);

/// What the blocks of a kernel do.
#[derive(Clone, Copy)]
#[repr(u32)]
enum What {
    Ask,
    Fail,
    ManyInFlight,
    GiveUp,
    Names,
    Hang,
    Forgotten,
    Bytes,
    Groups,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Work {
    net: Net,
    calls: Calls,
    what: u32,
    port: u32,
}

impl Kernel for Work {
    const ENTRY: &'static str = "work";
    fn run<G: Group>(self, g: &G) {
        let mut caller = Caller::open(g, self.net, self.calls);
        let what = |one: What| one as u32 == self.what;
        if what(What::Ask) {
            ask(g, &mut caller);
        } else if what(What::Fail) {
            fail(g, &mut caller);
        } else if what(What::ManyInFlight) {
            many_in_flight(g, &mut caller);
        } else if what(What::GiveUp) {
            give_up(g, &mut caller);
        } else if what(What::Names) {
            names(g, self.net, &mut caller, self.port as u16);
        } else if what(What::Bytes) {
            bytes(g, &mut caller);
        } else if what(What::Groups) {
            groups(g, self.net, self.calls, &mut caller);
        } else if what(What::Hang) {
            let end = caller.call(g, BLOCK, 0, Timeout::NEVER);
            assert_eq!(end, Err(Failure::Wait(Errno::Canceled)));
        } else {
            assert_eq!(caller.call(g, LATER, 1, Timeout::NEVER), Err(Failure::HostGone));
        }
        caller.close(g);
    }
}

fn ask<G: Group>(g: &G, caller: &mut Caller) {
    for round in 0..200 {
        let question = Question { block: g.index(), round, value: u64::from(round) << 33 };
        let answer = caller.call(g, ASK, question, LONG).unwrap();
        assert_eq!(answer.sum, (u64::from(round) << 33) + u64::from(g.index()));
        assert!(answer.text.iter().all(|&byte| byte == round as u8));
        caller.tell(g, COUNT, 1, LONG).unwrap();
    }
}

fn fail<G: Group>(g: &G, caller: &mut Caller) {
    assert_eq!(caller.call(g, MISSING, 1, LONG), Err(Failure::NoFunction));
    assert_eq!(caller.call(g, OTHER_ADD, 1, LONG), Err(Failure::Sizes));
    assert_eq!(caller.call(g, PANIC, 1, LONG), Err(Failure::Panicked));
    assert_eq!(caller.call(g, REFUSE, (), LONG), Err(Failure::Refused(Errno::AccessDenied)));
    assert_eq!(caller.call(g, LATER, 0, LONG), Err(Failure::Unanswered));
    assert_eq!(caller.call(g, ADD, [20, 22], LONG), Ok(42), "and the next call is answered");
}

fn bytes<G: Group>(g: &G, caller: &mut Caller) {
    // Each lane has its own, with the same contents.
    for len in 0..=70_u8 {
        let (mut asked, mut heard): (Vec<u8>, _) = ((0..len).collect(), [0xff_u8; 100]);
        // SAFETY: both live until the call has returned.
        let [request, answer] = unsafe {
            [
                Buffer::from_raw_parts(asked.as_mut_ptr(), asked.len()),
                Buffer::from_raw_parts(heard.as_mut_ptr(), heard.len()),
            ]
        };
        let mut ticket = caller.start_bytes(g, REVERSE, request, answer.len(), LONG).unwrap();
        let got = caller.wait_bytes(g, &mut ticket, answer, LONG);
        if len == 0 || len > 64 {
            let error = if len == 0 { Failure::Refused(Errno::NoData) } else { Failure::Sizes };
            assert_eq!(got, Err(error), "{len}");
        } else {
            assert_eq!(got, Ok(len.into()));
            asked.reverse();
            assert_eq!(&heard[..len.into()], asked);
        }
        // An answer that the caller has no room for, and one that nobody wants.
        let mut ticket = caller.start_bytes(g, REVERSE, request, usize::from(len) / 2, LONG).unwrap();
        let small = answer.first(usize::from(len) / 2);
        assert!(caller.wait_bytes(g, &mut ticket, small, LONG).is_err());
        caller.tell_bytes(g, REVERSE, request, LONG).unwrap();
    }
    let (mut asked, mut heard) = ([1, 2, 3], [0; 3]);
    // SAFETY: both live until the call has returned.
    let [request, answer] = unsafe {
        [Buffer::from_raw_parts(asked.as_mut_ptr(), 3), Buffer::from_raw_parts(heard.as_mut_ptr(), 3)]
    };
    assert_eq!((caller.call_bytes(g, REVERSE, request, answer, LONG), heard), (Ok(3), [3, 2, 1]));
    let answer = caller.call(g, REVERSE_WORDS, [0x0102_0304, 5], LONG);
    assert_eq!(answer, Ok([0x0500_0000, 0x0403_0201]));
}

/// The warps and the threads of a block have callers of their own, beside the block's.
fn groups<G: Group>(g: &G, net: Net, calls: Calls, caller: &mut Caller) {
    let mut of_block = caller.start(g, ADD, [g.index(), 1], LONG).unwrap();
    let (warp, thread) = (g.warp(), g.thread());
    let mut by_warp = Caller::open(&warp, net, calls);
    let mut by_thread = Caller::open(&thread, net, calls);
    for round in 0..50 {
        let mut of_warp = by_warp.start(&warp, ADD, [warp.index(), round], LONG).unwrap();
        assert_eq!(
            by_thread.call(&thread, ADD, [thread.index(), round + 7], LONG),
            Ok(thread.index() + round + 7)
        );
        assert_eq!(by_warp.wait(&warp, &mut of_warp, LONG), Ok(warp.index() + round));
    }
    by_thread.close(&thread);
    by_warp.close(&warp);
    assert_eq!(caller.wait(g, &mut of_block, LONG), Ok(g.index() + 1));
}

fn many_in_flight<G: Group>(g: &G, caller: &mut Caller) {
    for round in 0..50 {
        let mut tickets: [_; 16] =
            std::array::from_fn(|at| caller.start(g, ADD, [at as u32, round], LONG).unwrap());
        assert_eq!(caller.start(g, ADD, [0, 0], LONG).unwrap_err(), Failure::TooMany);
        for (at, ticket) in tickets.iter_mut().enumerate().rev() {
            assert_eq!(caller.wait(g, ticket, LONG), Ok(at as u32 + round));
        }
    }
}

/// The function blocks until the test lets it go; meanwhile all else is answered.
fn give_up<G: Group>(g: &G, caller: &mut Caller) {
    let mut blocked = caller.start(g, BLOCK, 1, LONG).unwrap();
    let late = caller.wait(g, &mut blocked, Timeout::us(300));
    assert_eq!(late, Err(Failure::Wait(Errno::TimedOut)));
    caller.give_up(blocked);
    // The same ticket's next calls.
    for round in 0..20 {
        assert_eq!(caller.call(g, ADD, [round, 1], LONG), Ok(round + 1));
    }
    caller.call(g, LATER, 1, LONG).unwrap();
}

fn names<G: Group>(g: &G, net: Net, caller: &mut Caller, port: u16) {
    let stream = connect(g, net, caller, Name::new("localhost", port).unwrap(), LONG).unwrap();
    stream.close(g).unwrap();
    let none = resolve(g, caller, Name::new("", 1).unwrap(), LONG);
    assert_eq!(none, Err(Failure::Refused(Errno::InvalidArgument)));
    let none = resolve(g, caller, Name::new("no name has spaces", 1).unwrap(), LONG);
    assert_eq!(none, Err(Failure::Refused(Errno::AddressNotAvailable)));
}

/// What the functions share with the test.
#[derive(Default)]
struct Shared {
    counted: AtomicU64,
    /// Replies that are given later.
    later: Mutex<Vec<Reply<u32>>>,
}

fn functions(shared: &Arc<Shared>, gate: mpsc::Receiver<()>) -> Functions {
    let mut functions = Functions::new();
    functions
        .add(ASK, |Question { block, round, value }| {
            Ok(Answer { sum: value + u64::from(block), text: [round as u8; 120] })
        })
        .unwrap();
    functions.add(ADD, |[a, b]| Ok(a + b)).unwrap();
    let reverse = |request: &[u8], answer: &mut [u8]| {
        if request.is_empty() {
            return Err(Errno::NoData);
        }
        // An answer that does not fit fails the call.
        for (to, from) in answer.iter_mut().zip(request.iter().rev()) {
            *to = *from;
        }
        Ok(request.len())
    };
    functions.add_bytes(REVERSE, 64, 64, reverse).unwrap();
    functions.add(PANIC, |_| panic!("planted")).unwrap();
    functions.add(REFUSE, |()| Err(Errno::AccessDenied)).unwrap();
    let of_later = shared.clone();
    let later = move |keep: u32, reply: Reply<u32>| match keep {
        // Dropped: nobody answers.
        0 => drop(reply),
        _ => of_later.later.lock().unwrap().push(reply),
    };
    functions.add_deferred(LATER, later).unwrap();
    let gate = Mutex::new(gate);
    let block = move |value| {
        let _ = gate.lock().unwrap().recv();
        Ok(value)
    };
    functions.add(BLOCK, block).unwrap();
    let of_count = shared.clone();
    let count = move |more: u32| {
        of_count.counted.fetch_add(more.into(), Ordering::Relaxed);
        Ok(())
    };
    functions.add(COUNT, count).unwrap();
    functions.add_names().unwrap();
    functions
}

struct Test {
    // Dropped in this order: the gate first, which lets blocked functions go.
    gate: mpsc::Sender<()>,
    attachment: Attachment,
    server: Option<CallServer>,
    shared: Arc<Shared>,
}

impl Test {
    fn new(channels: u32, threads: u32) -> Self {
        let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
        let (shared, (gate, gated)) = (Arc::new(Shared::default()), mpsc::channel());
        let settings = Settings { threads, ..Settings::new(channels) };
        let server = CallServer::start(&attachment, functions(&shared, gated), settings).unwrap();
        Self { gate, attachment, server: Some(server), shared }
    }

    fn launch(&self, what: What, blocks: u32, lanes: u32, port: u16) -> Launch {
        let program = self.attachment.load("", lanes).unwrap();
        // SAFETY: the server is dropped after the launch.
        let calls = unsafe { self.server.as_ref().unwrap().calls() };
        // SAFETY: as above.
        unsafe {
            self.attachment.launch(&program, blocks, lanes, |net| Work {
                net,
                calls,
                what: what as u32,
                port: port.into(),
            })
        }
        .unwrap()
    }

    fn run(&self, what: What, blocks: u32, lanes: u32) {
        self.launch(what, blocks, lanes, 0).finish(FinishPolicy::Close).unwrap();
    }

    fn counts(&self) -> gpunet_calls_host::Counts {
        self.server.as_ref().unwrap().counts()
    }
}

#[test]
fn blocks_of_several_lanes_ask_and_tell() {
    let test = Test::new(3, 2);
    test.run(What::Ask, 3, 4);
    // Nothing says when a call without an answer has run; the next calls of the pool do.
    while test.counts().told < 600 {
        std::thread::yield_now();
    }
    assert_eq!(test.shared.counted.load(Ordering::Relaxed), 600);
    let counts = test.counts();
    assert_eq!((counts.answered, counts.failed, counts.late, counts.malformed), (600, 0, 0, 0));
}

#[test]
fn failures_are_those_of_one_call() {
    let test = Test::new(2, 2);
    test.run(What::Fail, 2, 3);
    let counts = test.counts();
    assert_eq!((counts.answered, counts.failed), (4, 8), "refusals are answers");
}

#[test]
fn blocks_warps_and_threads_call() {
    // A block of five lanes has itself, at most two warps and five threads.
    let test = Test::new(2 * (1 + 2 + 5), 2);
    test.run(What::Groups, 2, 5);
    let counts = test.counts();
    assert_eq!((counts.failed, counts.malformed), (0, 0));
    assert!(counts.answered >= 2 * (1 + 50 + 5 * 50), "{counts:?}");
}

#[test]
fn bytes_go_and_come() {
    let test = Test::new(3, 2);
    test.run(What::Bytes, 3, 5);
    let counts = test.counts();
    // Each block gets 64 answers and one of words, and tells 71. Seven calls are too long. 71 have
    // no room for their answers; one of these is refused.
    assert_eq!((counts.told + counts.failed + counts.answered, counts.malformed), (3 * (71 * 3 + 2), 0));
    assert_eq!(counts.answered, 3 * (64 + 1 + 2 + 1));
}

#[test]
fn many_calls_are_in_flight() {
    let test = Test::new(2, 2);
    test.run(What::ManyInFlight, 2, 2);
    assert_eq!(test.counts().answered, 2 * 50 * 16);
}

/// A function blocks: its caller's deadline ends the wait, other calls are answered by another
/// thread, and its answer, once it comes, is nobody's.
#[test]
fn a_function_that_blocks_keeps_nobody_and_its_late_answer_is_dropped() {
    let test = Test::new(1, 2);
    let launch = test.launch(What::GiveUp, 1, 2, 0);
    // The last call of the kernel is answered from here, after the function was let go.
    let reply = loop {
        match test.shared.later.lock().unwrap().pop() {
            Some(reply) => break reply,
            None => std::thread::yield_now(),
        }
    };
    test.gate.send(()).unwrap();
    while test.counts().late == 0 {
        std::thread::yield_now();
    }
    assert!(reply.send(7));
    launch.finish(FinishPolicy::Close).unwrap();
    let counts = test.counts();
    assert_eq!((counts.answered, counts.late, counts.failed), (21, 1, 0));
}

#[test]
fn kernels_connect_by_name() {
    // Whichever address "localhost" is first.
    let listener = std::net::TcpListener::bind(("localhost", 0)).unwrap();
    let test = Test::new(1, 2);
    let launch = test.launch(What::Names, 1, 2, listener.local_addr().unwrap().port());
    listener.accept().unwrap();
    launch.finish(FinishPolicy::Close).unwrap();
    assert_eq!(test.counts().answered, 3, "errors of the resolver are answers");
}

/// Every thread is kept by a function: cancel ends the waits of callers.
#[test]
fn a_cancelled_kernel_waits_for_no_function() {
    let test = Test::new(3, 2);
    let launch = test.launch(What::Hang, 3, 1, 0);
    launch.cancel();
    launch.finish(FinishPolicy::Close).unwrap();
}

/// A call waits for a reply that is given too late: the server has ended.
#[test]
fn a_server_that_ends_tells_its_callers() {
    let mut test = Test::new(1, 2);
    let launch = test.launch(What::Forgotten, 1, 2, 0);
    while test.shared.later.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }
    test.server.as_mut().unwrap().stop();
    launch.finish(FinishPolicy::Close).unwrap();
    let reply = test.shared.later.lock().unwrap().pop().unwrap();
    // It keeps the memory that it answers to.
    drop(test);
    reply.send(1);
}

#[test]
fn what_cannot_be_is_refused() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    let mut functions = Functions::new();
    functions.add(ADD, |[a, b]| Ok(a + b)).unwrap();
    assert_eq!(functions.add(OTHER_ADD, Ok).unwrap_err(), Registered(2));
    let settings = Settings { tickets: 65, ..Settings::new(1) };
    let error = CallServer::start(&attachment, functions, settings).unwrap_err();
    assert!(matches!(error, Error::Shape { tickets: 65, .. }));
}
