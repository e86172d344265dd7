//! What the server counts, and how `/metrics` tells it: the text format of Prometheus.
//!
//! Each block has a row of words and alone writes it. Who asks gets the sums.
#![allow(unsafe_code)]

use gpunet_device::Group;
use gpunet_http::Body;
use gpunet_serve::{Carve, Memory};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Requests for tokens that the model was given.
    Accepted,
    /// Requests that were refused for what they ask.
    Refused,
    /// Requests that found no room in the queue.
    Busy,
    /// Answers that were given to their end.
    Answered,
    /// Requests whose clients went before the end.
    Abandoned,
    /// Tokens of prompts that were computed.
    PromptTokens,
    /// Tokens that the model has made.
    Tokens,
    /// Steps of the model.
    Steps,
    /// Sequences of all steps: divided by the steps, how many were in the batch.
    StepSequences,
}

/// How many they are.
const COUNTERS: usize = Count::StepSequences as usize + 1;
/// Two histograms, each of a sum of nanoseconds and counts up to each limit.
const LIMITS: usize = 17;
const HISTOGRAM: usize = 1 + LIMITS + 1;
const WORDS: usize = COUNTERS + 2 * HISTOGRAM;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// From a whole request to the first bytes of its text.
    FirstToken,
    /// From the model's store of a token until it is put into the connection.
    Delivery,
}

/// The limits of both histograms, in microseconds: 1, 2 and 5 times powers of ten, from 10 us to
/// 1 s, beside 150 us, for which there is a target.
const fn limit_us(at: usize) -> u64 {
    const fn power(mut exponent: usize) -> u64 {
        let mut power = 10;
        while exponent > 0 {
            (power, exponent) = (power * 10, exponent - 1);
        }
        power
    }
    let place = match at {
        0..=3 => at,
        4 => return 150,
        _ => at - 1,
    };
    let first = match place % 3 {
        0 => 1,
        1 => 2,
        _ => 5,
    };
    first * power(place / 3)
}

/// The rows of all blocks, and for each block a row for the sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metrics {
    memory: Memory,
    blocks: usize,
}

impl Metrics {
    const ROW: usize = (WORDS * 8).next_multiple_of(64);

    pub(crate) fn new(carve: &mut Carve) -> Self {
        let blocks = carve.blocks();
        // SAFETY: every block carves it alike. All of it is words; a block writes those of its two
        // rows only.
        Self { memory: unsafe { carve.memory(2 * blocks * Self::ROW) }, blocks }
    }

    fn row(self, row: usize) -> Memory {
        self.memory.part(row * Self::ROW, Self::ROW)
    }

    /// Counts. All lanes; the leader writes.
    pub(crate) fn add<G: Group>(self, g: &G, count: Count, more: u64) {
        if g.is_leader() {
            self.add_to(g, count as usize, more);
        }
    }

    fn add_to<G: Group>(self, g: &G, at: usize, more: u64) {
        let word = self.row(g.index() as usize).u64(at * 8);
        word.set(word.get().wrapping_add(more));
    }

    /// Adds a measured time, as the leader knows it.
    pub(crate) fn measured<G: Group>(self, g: &G, time: Time, ns: u64) {
        if !g.is_leader() {
            return;
        }
        let start = COUNTERS + time as usize * HISTOGRAM;
        let mut at = 0;
        while at < LIMITS && ns > limit_us(at) * 1000 {
            at += 1;
        }
        self.add_to(g, start, ns);
        self.add_to(g, start + 1 + at, 1);
    }

    /// Adds the rows up, lanes side by side. All lanes then read the same ([`Sums`]), until the
    /// next call by this block.
    pub(crate) fn sums<G: Group>(self, g: &G) -> Sums {
        let to = self.row(self.blocks + g.index() as usize);
        // All lanes have read the last ones.
        g.sync();
        let mut at = g.rank() as usize;
        while at < WORDS {
            let (mut sum, mut block) = (0u64, 0);
            while block < self.blocks {
                sum = sum.wrapping_add(self.row(block).u64(at * 8).get());
                block += 1;
            }
            to.u64(at * 8).set(sum);
            at += g.size() as usize;
        }
        g.sync();
        Sums { row: to }
    }
}

/// The sums of all blocks at some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    row: Memory,
}

/// Values that go up and down.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauges {
    /// Requests in the batch.
    pub(crate) running: usize,
    /// Requests that wait for a place in it.
    pub(crate) waiting: usize,
    /// Connections.
    pub(crate) connections: u64,
}

impl Sums {
    fn get(self, at: usize) -> i64 {
        self.row.u64(at * 8).get() as i64
    }

    /// Writes all of it.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn put<G: Group>(self, g: &G, body: &mut Body<'_, '_>, gauges: &Gauges) {
        let mut counter = |count: Count, name: &'static [u8]| {
            self.put_value(g, body, name, b"_total", b"counter", self.get(count as usize));
        };
        counter(Count::Accepted, b"requests_accepted");
        counter(Count::Refused, b"requests_refused");
        counter(Count::Busy, b"requests_busy");
        counter(Count::Answered, b"requests_answered");
        counter(Count::Abandoned, b"requests_abandoned");
        counter(Count::PromptTokens, b"prompt_tokens");
        counter(Count::Tokens, b"generation_tokens");
        counter(Count::Steps, b"steps");
        counter(Count::StepSequences, b"step_sequences");
        self.put_value(g, body, b"requests_running", b"", b"gauge", gauges.running as i64);
        self.put_value(g, body, b"requests_waiting", b"", b"gauge", gauges.waiting as i64);
        self.put_value(g, body, b"connections", b"", b"gauge", gauges.connections as i64);
        self.put_histogram(g, body, Time::FirstToken, b"time_to_first_token_seconds");
        self.put_histogram(g, body, Time::Delivery, b"token_delivery_seconds");
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn put_value<G: Group>(
        self,
        g: &G,
        body: &mut Body<'_, '_>,
        name: &'static [u8],
        suffix: &'static [u8],
        kind: &'static [u8],
        value: i64,
    ) {
        put_type(g, body, name, suffix, kind);
        body.put(g, PREFIX);
        body.put(g, name);
        body.put(g, suffix);
        body.put(g, b" ");
        body.put_number(g, value);
        body.put(g, b"\n");
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn put_histogram<G: Group>(self, g: &G, body: &mut Body<'_, '_>, time: Time, name: &'static [u8]) {
        put_type(g, body, name, b"", b"histogram");
        let start = COUNTERS + time as usize * HISTOGRAM;
        let (mut at, mut below) = (0, 0);
        while at <= LIMITS {
            below += self.get(start + 1 + at);
            body.put(g, PREFIX);
            body.put(g, name);
            body.put(g, b"_bucket{le=\"");
            if at < LIMITS {
                put_seconds(g, body, limit_us(at) * 1000);
            } else {
                body.put(g, b"+Inf");
            }
            body.put(g, b"\"} ");
            body.put_number(g, below);
            body.put(g, b"\n");
            at += 1;
        }
        body.put(g, PREFIX);
        body.put(g, name);
        body.put(g, b"_sum ");
        put_seconds(g, body, self.get(start) as u64);
        body.put(g, b"\n");
        body.put(g, PREFIX);
        body.put(g, name);
        body.put(g, b"_count ");
        body.put_number(g, below);
        body.put(g, b"\n");
    }
}

const PREFIX: &[u8] = b"gpunet_tokens_";

fn put_type<G: Group>(g: &G, body: &mut Body<'_, '_>, name: &[u8], suffix: &[u8], kind: &[u8]) {
    body.put(g, b"# TYPE gpunet_tokens_");
    body.put(g, name);
    body.put(g, suffix);
    body.put(g, b" ");
    body.put(g, kind);
    body.put(g, b"\n");
}

/// Nanoseconds as seconds, with nine digits behind the point.
fn put_seconds<G: Group>(g: &G, body: &mut Body<'_, '_>, ns: u64) {
    let (mut digits, mut at, mut rest) = (*b".000000000", 10, ns % 1_000_000_000);
    while at > 1 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    body.put_number(g, (ns / 1_000_000_000) as i64);
    body.put(g, &digits);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_go_up_to_a_second() {
        let limits: std::vec::Vec<_> = (0..LIMITS).map(limit_us).collect();
        assert!(limits.is_sorted());
        assert_eq!((limits[0], limits[3], limits[4], limits[5]), (10, 100, 150, 200));
        assert_eq!(limits[LIMITS - 1], 1_000_000);
    }
}
