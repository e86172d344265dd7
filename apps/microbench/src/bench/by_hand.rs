//! A stream's operations written by hand, with which a queue is compared. On the CPU device a
//! thread carries them out.

use super::Bench;
use crate::outcome::Outcome;
use crate::sockets::{are_cores_few, spin};
use gpu_usermap::cuda::{CudaStream, StreamPriority};
use gpunet_device::abi::Word;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// One operation, at addresses of the device.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Wait { word: u64, value: u64 },
    Write { word: u64, value: u64 },
    Copy { to: u64, from: u64, len: usize },
}

/// Operations in order. When it is dropped, waiting operations are abandoned on the CPU device, and
/// continue on a GPU.
pub struct ByHand(Engine);

enum Engine {
    Cuda(CudaStream),
    Cpu { steps: Option<Sender<Step>>, stop: Arc<AtomicBool>, thread: Option<JoinHandle<()>> },
}

impl Bench {
    /// Returns a stream of the device, or a thread in place of one.
    pub fn by_hand(&self) -> Outcome<ByHand> {
        if let Some(device) = self.attachment.cuda() {
            device.stream_memory_operations()?;
            return Ok(ByHand(Engine::Cuda(device.create_stream(StreamPriority::Normal)?)));
        }
        let (steps, inbox) = channel();
        let stop = Arc::<AtomicBool>::default();
        let told = stop.clone();
        let thread = Builder::new().name("by-hand".to_owned()).spawn(move || play(&inbox, &told))?;
        Ok(ByHand(Engine::Cpu { steps: Some(steps), stop, thread: Some(thread) }))
    }
}

impl ByHand {
    /// Enqueues operations, each by a call of its own.
    ///
    /// Measurements name memory of a `Job`, of `Pinned` or of `Words`, which they keep until a word
    /// shows that all operations are done. On a GPU such memory also stays mapped while the stream
    /// has operations.
    pub fn enqueue(&self, steps: &[Step]) -> Outcome<()> {
        match &self.0 {
            Engine::Cuda(stream) => {
                // SAFETY: the addresses are mapped until the operations have passed (see above),
                // words are aligned, and pieces that are copied do not overlap.
                steps.iter().try_for_each(|&step| unsafe { on_stream(stream, step) })
            }
            Engine::Cpu { steps: Some(to), .. } => {
                Ok(steps.iter().try_for_each(|&step| to.send(step)).map_err(|_| "the thread has ended")?)
            }
            Engine::Cpu { .. } => Ok(()),
        }
    }
}

/// # Safety
/// The addresses are valid until the operation has passed.
unsafe fn on_stream(stream: &CudaStream, step: Step) -> Outcome<()> {
    // SAFETY: the caller's promise.
    let enqueued = unsafe {
        match step {
            Step::Wait { word, value } => stream.wait_value_geq(word, value),
            Step::Write { word, value } => stream.write_value(word, value),
            Step::Copy { to, from, len } => stream.copy(to, from, len),
        }
    };
    Ok(enqueued?)
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let Engine::Cpu { steps, stop, thread } = &mut self.0 else { return };
        drop(steps.take());
        // Ordering: Relaxed; it ends waits only.
        stop.store(true, Ordering::Relaxed);
        // It does not panic.
        let _ = thread.take().map(JoinHandle::join);
    }
}

/// Carries out operations on the CPU.
fn play(inbox: &Receiver<Step>, stop: &AtomicBool) {
    let few = are_cores_few();
    // SAFETY: an aligned word that all access atomically, mapped until this thread has ended
    // (`ByHand::enqueue`).
    let word = |address: u64| unsafe { Word::from_ptr(address as *mut u64) };
    for step in inbox {
        match step {
            Step::Wait { word: at, value } => {
                while word(at).observe() < value {
                    // Ordering: Relaxed; nothing depends on earlier stores.
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    spin(few);
                }
            }
            Step::Write { word: at, value } => word(at).publish(value),
            Step::Copy { to, from, len } => {
                // SAFETY: both are mapped until this thread has ended, do not overlap, and words
                // keep other agents from using them.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, len) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Words;
    use super::*;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn operations_are_carried_out_in_order_once_a_word_allows() {
        let bench = Bench::cpu().unwrap();
        let words = Words::new(&bench).unwrap();
        let [mut from, to] = [bench.lend(3).unwrap(), bench.lend(3).unwrap()];
        from.write(b"abc").unwrap();
        let stream = bench.by_hand().unwrap();
        let [start, ended] = [0, 1].map(|word| words.address(word));
        stream
            .enqueue(&[
                Step::Wait { word: start, value: 7 },
                Step::Copy { to: to.address(), from: from.address(), len: 3 },
                Step::Write { word: ended, value: 9 },
            ])
            .unwrap();
        assert!(words.wait(1, 9, Duration::from_millis(2)).is_err());
        words.here(0).publish(7);
        words.wait(1, 9, LIMIT).unwrap();
        drop(stream);
        assert!(to.holds(b"abc").unwrap());
        from.done();
        to.done();
    }

    #[test]
    fn what_waits_is_given_up_by_its_drop() {
        let bench = Bench::cpu().unwrap();
        let words = Words::new(&bench).unwrap();
        let stream = bench.by_hand().unwrap();
        stream.enqueue(&[Step::Wait { word: words.address(0), value: 1 }]).unwrap();
        drop(stream);
    }

    #[test]
    fn queues_go_on_when_the_words_are_dropped_that_they_wait_for() {
        let bench = Bench::cpu().unwrap();
        let words = Words::new(&bench).unwrap();
        let mut queue = bench.queue().unwrap();
        queue.wait_word(words.there(0), 1).unwrap();
        let error = words.wait_asleep(1, 1, Duration::from_millis(2)).unwrap_err().to_string();
        assert!(error.contains("stood still") && error.ends_with("0 of 1"), "{error}");
        drop(words);
        queue.synchronize().unwrap();
    }
}
