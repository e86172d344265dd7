//! A thread block on one thread of the system: its threads take turns.
//!
//! Each thread has a stack of its own. A thread runs until it comes to a meeting (a barrier, a
//! collective call), waits in a call, calls `gpunet_host_take_turns`, or ends; then the next one
//! continues. So `thread_local` variables are memory of the block, and gpunet_cpu.h implements
//! `__shared__` with them.

use gpunet_device::Group;
use gpunet_device::cpu::take_turns;
use gpunet_device::group::{Alone, Lane, Solo};
use gpunet_posix::capi;
use libc::{c_void, ucontext_t};
use std::cell::Cell;
use std::ptr::null_mut;
use std::time::Duration;

/// Threads of a warp, as on every NVIDIA GPU.
const WARP: usize = 32;
/// The stack of a thread, and the guard page below it, which no thread may touch.
const STACK: usize = 256 * 1024;
const GUARD: usize = 4096;
/// How many turns each thread passes on before the thread of the system sleeps, because all of them
/// wait.
const TURNS: usize = 64;
const NAP: Duration = Duration::from_micros(50);

/// Called with the number of the thread of the block that runs from now on.
pub(super) type OnTurn = Option<unsafe extern "C" fn(thread: u32)>;

thread_local! {
    static BLOCK: Cell<*mut Block> = const { Cell::new(null_mut()) };
}

/// A meeting of threads: each contributes a value, and all receive the value of the first and the
/// sum.
#[derive(Default)]
struct Meeting {
    members: usize,
    arrived: usize,
    purpose: &'static str,
    value: u64,
    sum: u32,
    /// The result of the last complete meeting. It stays until all have come to the next one, and
    /// so have read it.
    result: (u64, u32),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Runs,
    /// The thread is at the meeting of its warp (`true`) or of the block.
    Meets(bool),
    Ended,
}

struct Thread {
    context: Box<ucontext_t>,
    /// Beginning of its stack's mapping.
    stack: *mut c_void,
    state: State,
}

struct Block {
    index: u32,
    count: u32,
    threads: Vec<Thread>,
    running: usize,
    all: Meeting,
    warps: Vec<Meeting>,
    /// The thread of the system, while the threads of the block run.
    outside: Box<ucontext_t>,
    /// Turns since a thread last made progress.
    turns: usize,
    body: *const dyn Fn(),
    on_turn: OnTurn,
}

/// Ends the program: the threads of a block wait for each other, and none can continue.
fn apart(why: &str) -> ! {
    eprintln!("gpunet: threads of a block wait for each other, and none can go on: {why}");
    std::process::abort()
}

impl Block {
    /// Returns the block of the calling thread.
    ///
    /// # Safety
    /// The reference ends before another thread of the block runs.
    unsafe fn current<'a>() -> &'a mut Self {
        // SAFETY: `run` has set it, and clears it when the last thread has ended; only this thread
        // uses it.
        unsafe { &mut *BLOCK.get() }
    }

    fn meeting(&mut self, thread: usize, of_warp: bool) -> &mut Meeting {
        if of_warp { &mut self.warps[thread / WARP] } else { &mut self.all }
    }

    /// Ends a meeting if all have come, so that they continue.
    fn complete(&mut self, thread: usize, of_warp: bool) -> bool {
        let meeting = self.meeting(thread, of_warp);
        if meeting.arrived == 0 || meeting.arrived < meeting.members {
            return false;
        }
        meeting.result = (meeting.value, meeting.sum);
        (meeting.arrived, meeting.value, meeting.sum) = (0, 0, 0);
        self.turns = 0;
        for (at, other) in self.threads.iter_mut().enumerate() {
            if other.state == State::Meets(of_warp) && (!of_warp || at / WARP == thread / WARP) {
                other.state = State::Runs;
            }
        }
        true
    }

    /// Returns the next thread after the running one that can run.
    fn next(&self) -> Option<usize> {
        let count = self.threads.len();
        (1..count).map(|step| (self.running + step) % count).find(|&at| self.threads[at].state == State::Runs)
    }

    /// Lets thread `to` run, until the calling one has its next turn.
    ///
    /// # Safety
    /// No reference to the block is used across it.
    unsafe fn switch(block: *mut Self, to: usize) {
        let own = capi::block();
        // SAFETY: the caller's contract: for these lines it is the only reference.
        let (from, there, on_turn) = unsafe {
            let block = &mut *block;
            let from = std::mem::replace(&mut block.running, to);
            let from: *mut ucontext_t = &raw mut *block.threads[from].context;
            (from, &raw const *block.threads[to].context, block.on_turn)
        };
        if let Some(on_turn) = on_turn {
            // SAFETY: the program's function, as `gpunet_host_run_blocks` requires it.
            unsafe { on_turn(to as u32) };
        }
        // SAFETY: both contexts stay where they are while the block lives; `to` has been made and
        // has not ended, and runs on this thread of the system as always.
        unsafe { libc::swapcontext(from, there) };
        capi::resume(own);
    }

    /// Meets the others.
    fn meet(of_warp: bool, purpose: &'static str, value: Option<u64>, add: u32) -> (u64, u32) {
        let pointer = BLOCK.get();
        // SAFETY: the reference ends before another thread runs.
        let block = unsafe { Self::current() };
        let own = block.running;
        let meeting = block.meeting(own, of_warp);
        if meeting.arrived == 0 {
            meeting.purpose = purpose;
        } else if meeting.purpose != purpose {
            apart(&format!("thread {own} is at {purpose}, and another one at {}", meeting.purpose));
        }
        meeting.arrived += 1;
        meeting.value = value.unwrap_or(meeting.value);
        meeting.sum = meeting.sum.wrapping_add(add);
        if !block.complete(own, of_warp) {
            block.threads[own].state = State::Meets(of_warp);
            let Some(next) = block.next() else { apart("some are at a barrier to which others do not come") };
            // SAFETY: no reference is used across it.
            unsafe { Self::switch(pointer, next) };
        }
        // SAFETY: as above.
        unsafe { Self::current() }.meeting(own, of_warp).result
    }

    /// Lets other threads run. Returns whether there were any.
    pub(super) fn pass_on() -> bool {
        let pointer = BLOCK.get();
        if pointer.is_null() {
            return false;
        }
        // SAFETY: the reference ends before another thread runs.
        let block = unsafe { Self::current() };
        let Some(next) = block.next() else { return false };
        block.turns += 1;
        if block.turns > TURNS * block.threads.len() {
            block.turns = 0;
            std::thread::sleep(NAP);
        }
        // SAFETY: no reference is used across it.
        unsafe { Self::switch(pointer, next) };
        true
    }
}

/// The entry function of a thread of a block.
extern "C" fn thread_of_block() {
    let pointer = BLOCK.get();
    // SAFETY: the reference ends before another thread runs.
    let block = unsafe { Block::current() };
    let (own, body) = (block.running, block.body);
    let place = Place {
        thread: own as u32,
        threads: block.threads.len() as u32,
        block: block.index,
        blocks: block.count,
        of_warp: false,
    };
    // SAFETY: `run` borrows the function until all threads have ended.
    capi::as_group(&place, || unsafe { (*body)() });

    // SAFETY: the reference ends before another thread runs.
    let block = unsafe { Block::current() };
    block.threads[own].state = State::Ended;
    for of_warp in [true, false] {
        // The threads that wait for it wait no longer.
        block.meeting(own, of_warp).members -= 1;
        block.complete(own, of_warp);
    }
    match block.next() {
        // SAFETY: no reference is used across it; this thread has no further turn.
        Some(next) => unsafe { Block::switch(pointer, next) },
        None if block.threads.iter().all(|thread| thread.state == State::Ended) => {
            let (from, outside): (*mut ucontext_t, *const ucontext_t) =
                (&raw mut *block.threads[own].context, &raw const *block.outside);
            // SAFETY: `run` waits there.
            unsafe { libc::swapcontext(from, outside) };
        }
        None => apart("some are at a barrier to which others do not come"),
    }
    unreachable!("a thread of a block that has ended runs again");
}

/// Maps a stack, and below it a page that ends the program when it is touched.
fn map_stack() -> std::io::Result<*mut c_void> {
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: new memory.
    let stack = unsafe { libc::mmap(null_mut(), STACK + GUARD, access, kind, -1, 0) };
    if stack == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the first page of that memory.
    unsafe { libc::mprotect(stack, GUARD, libc::PROT_NONE) };
    Ok(stack)
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: mapped by `map_stack`; the thread has ended, or has never run.
        unsafe { libc::munmap(self.stack, STACK + GUARD) };
    }
}

/// Runs `body` by all threads of a block on the calling thread.
///
/// # Errors
/// The system's, when there is no memory for stacks; then none has run.
pub(super) fn run(
    index: u32,
    count: u32,
    threads: u32,
    on_turn: OnTurn,
    body: &dyn Fn(),
) -> std::io::Result<()> {
    let mut all = Vec::new();
    for _ in 0..threads {
        // SAFETY: a structure of numbers and pointers, which `getcontext` fills.
        let mut context: Box<ucontext_t> = Box::new(unsafe { std::mem::zeroed() });
        let stack = map_stack()?;
        // SAFETY: the context is writable.
        unsafe { libc::getcontext(&raw mut *context) };
        context.uc_stack.ss_sp = stack.wrapping_byte_add(GUARD);
        context.uc_stack.ss_size = STACK;
        context.uc_link = null_mut();
        // SAFETY: the context is one of `getcontext`'s, with a stack; the function takes no
        // arguments.
        unsafe { libc::makecontext(&raw mut *context, thread_of_block, 0) };
        all.push(Thread { context, stack, state: State::Runs });
    }
    let whole = threads as usize;
    let meeting = |members| Meeting { members, ..Meeting::default() };
    // SAFETY: this only extends the pointer's lifetime: the block ends before this call does.
    let body = unsafe { std::mem::transmute::<*const (dyn Fn() + '_), *const dyn Fn()>(body) };
    let mut block = Block {
        index,
        count,
        threads: all,
        running: 0,
        all: meeting(whole),
        warps: (0..whole.div_ceil(WARP)).map(|warp| meeting((whole - warp * WARP).min(WARP))).collect(),
        // SAFETY: a structure of numbers and pointers, which `swapcontext` fills.
        outside: Box::new(unsafe { std::mem::zeroed() }),
        turns: 0,
        body,
        on_turn,
    };
    let (outside, first): (*mut ucontext_t, *const ucontext_t) =
        (&raw mut *block.outside, &raw const *block.threads[0].context);
    let before = capi::block();
    BLOCK.set(&raw mut block);
    take_turns(Some(Block::pass_on));
    if let Some(on_turn) = on_turn {
        // SAFETY: the program's function, as in `switch`.
        unsafe { on_turn(0) };
    }
    // SAFETY: contexts that stay where they are; the first thread has been made.
    unsafe { libc::swapcontext(outside, first) };
    take_turns(None);
    BLOCK.set(null_mut());
    capi::resume(before);
    Ok(())
}

/// Lets other threads of the calling thread's block run. Returns whether there were any.
pub(super) fn pass_on() -> bool {
    Block::pass_on()
}

/// A thread's place in its block, or in its warp.
struct Place {
    thread: u32,
    threads: u32,
    block: u32,
    blocks: u32,
    of_warp: bool,
}

impl Group for Place {
    type Warp = Self;
    type Thread = Solo;
    type Front = Alone;

    fn rank(&self) -> u32 {
        self.thread
    }
    fn size(&self) -> u32 {
        self.threads
    }
    fn index(&self) -> u32 {
        self.block
    }
    fn count(&self) -> u32 {
        self.blocks
    }
    fn sync(&self) {
        Block::meet(self.of_warp, "a barrier", None, 0);
    }
    fn broadcast(&self, value: u64) -> u64 {
        Block::meet(self.of_warp, "a broadcast", (self.thread == 0).then_some(value), 0).0
    }
    fn sum(&self, value: u32) -> u32 {
        Block::meet(self.of_warp, "a sum", None, value).1
    }
    fn has_front(&self, _lane: Lane) -> bool {
        true
    }
    fn front(&self, lane: Lane) -> Option<Alone> {
        lane.is_leader().then_some(Alone)
    }
    fn warp(&self) -> Self {
        let (width, warps) = (WARP as u32, self.threads.div_ceil(WARP as u32));
        let first = self.thread / width * width;
        Self {
            thread: self.thread % width,
            threads: (self.threads - first).min(width),
            block: self.block * warps + self.thread / width,
            blocks: self.blocks * warps,
            of_warp: true,
        }
    }
    fn thread(&self) -> Solo {
        Solo::new(self.block * self.threads + self.thread, self.blocks * self.threads)
    }
}
