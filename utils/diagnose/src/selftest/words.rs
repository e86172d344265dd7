//! Round trips of two words.

use super::device::{Job, TestDevice, outcome};
use super::{Found, LIMIT};
use gpunet_device::abi::Word;
use gpunet_diagnose_kernel::Words;
use std::time::{Duration, Instant};

/// Round trips with a GPU, and of CPU threads, which may have to share a core.
const ROUNDS: [u64; 2] = [4000, 1000];
/// A GPU behind PCIe 4 or 5 needs 3 to 5 us. A longer time points to a power-saving state, a link
/// with few lanes, or a shared CPU.
const SLOW: Duration = Duration::from_micros(10);
/// Where the words lie, on lines of their own.
const PING: usize = 0;
const PONG: usize = 256;

pub fn run(device: &TestDevice) -> Result<Found, String> {
    let rounds = ROUNDS[usize::from(!device.is_gpu())];
    let job = device.job(4096, 0)?;
    let kernel = |_, job: &Job| Words {
        ping: job.device(PING, 8).cast(),
        pong: job.device(PONG, 8).cast(),
        rounds,
        limit_ns: LIMIT.as_nanos() as u64,
        results: job.results(),
    };
    let (answers, words, _) =
        device.run(job, 1, kernel, |job| reply(job.word(PING), job.word(PONG), rounds))?;
    outcome(&words, 0, "the device")?;
    let times = answers.ok_or("the CPU saw no more words from the device")?;
    Ok(judge(&times, device.is_gpu()))
}

/// Answers each word, and measures from one to the next: a whole round trip.
fn reply(ping: Word, pong: Word, rounds: u64) -> Option<Vec<Duration>> {
    let start = Instant::now();
    let (mut times, mut last) = (Vec::with_capacity(rounds as usize), start);
    for round in 1..=rounds {
        let mut looks = 0_u32;
        while ping.observe() < round {
            looks += 1;
            if looks.is_multiple_of(256) {
                std::thread::yield_now();
                if start.elapsed() > LIMIT {
                    return None;
                }
            }
        }
        let now = Instant::now();
        pong.publish(round);
        times.push(now - last);
        last = now;
    }
    // The first one includes the launch, the next ones a device that warms up.
    Some(times.split_off(times.len() / 10))
}

fn judge(times: &[Duration], gpu: bool) -> Found {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |share: usize| sorted.get(sorted.len() * share / 100).copied().unwrap_or_default();
    let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
    let (median, late) = (at(50), at(99));
    let text = format!("{} round trips, p50 {:.1} us, p99 {:.1} us", sorted.len(), us(median), us(late));
    if gpu && median > SLOW {
        let advice = format!(
            "above {} us: look at gpu.link and topology.numa, at power saving (`nvidia-smi -q -d PERFORMANCE`), and \
             at what else runs on these CPUs",
            SLOW.as_micros()
        );
        return Found::Slow(text, advice);
    }
    Found::Right(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_gpu_is_told_and_a_slow_cpu_is_not() {
        let times = vec![Duration::from_micros(20); 100];
        assert!(matches!(judge(&times, true), Found::Slow(text, _) if text.contains("p50 20.0 us")));
        assert!(matches!(judge(&times, false), Found::Right(_)));
        assert!(matches!(judge(&[Duration::from_micros(3); 100], true), Found::Right(_)));
    }

    #[test]
    fn few_late_ones_do_not_make_it_slow() {
        let mut times = vec![Duration::from_micros(3); 99];
        times.push(Duration::from_millis(5));
        assert!(matches!(judge(&times, true), Found::Right(_)));
    }
}
