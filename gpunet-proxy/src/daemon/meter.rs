//! Counts what kernels have recorded, for metrics: it reads the rings as any other reader does,
//! which changes nothing for them.
//!
//! Programs may write anything into their memory. A look at a ring is bounded by its size, and what
//! is kept of it by the constants here.

use super::logs::OfClient;
use crate::attached::session::logs::Source;
use gpu_usermap::PinnedRegion;
use gpunet_core::ids::AttachmentId;
use gpunet_records::{Found, Head, Mark};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Counters of a client at most.
const NAMES: usize = 64;
/// Values of a client's counters at most: one for each ring that has written it.
const VALUES: usize = 65_536;

/// What the kernels of a client have recorded.
///
/// # Examples
/// ```no_run
/// # async fn example(daemon: &gpunet_proxy::daemon::Daemon) {
/// for client in daemon.request_kernel_records().await.unwrap_or_default() {
///     println!("client {}: {} records, {} refused", client.client, client.written, client.refused);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelRecords {
    /// The client's number: [`Client::id`](crate::snapshot::Client::id).
    pub client: u32,
    /// The process's name.
    pub command: String,
    /// Records that were written into rings.
    pub written: u64,
    /// Of these, records that were overwritten before the daemon looked. The program's own reader
    /// may have had them.
    pub overwritten: u64,
    /// Records that found no room in time, or no ring: nobody has them.
    pub refused: u64,
    /// Records whose length cannot be.
    pub malformed: u64,
    /// The counters, by name.
    pub counters: Vec<KernelCounter>,
    /// Whether there are more counters, or more groups that count, than are kept.
    pub is_cut: bool,
}

/// A counter of the kernels of a client.
///
/// # Examples
/// ```
/// use gpunet_proxy::daemon::{KernelCounter, KernelRecords};
///
/// fn value(records: &KernelRecords, name: &str) -> Option<i64> {
///     records.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
/// }
/// # assert_eq!(value(&KernelRecords::default(), "steps"), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelCounter {
    /// The text of its format.
    pub name: String,
    /// The sum of the values that its groups have noted last.
    pub value: i64,
}

/// Reads the rings of all clients.
#[derive(Debug, Default)]
pub(super) struct Meter {
    clients: BTreeMap<u32, Metered>,
}

/// A client.
#[derive(Debug, Default)]
struct Metered {
    command: String,
    sets: Vec<Set>,
    /// Sums of the sets that are gone.
    gone: Found,
    /// The last values by counter and by ring, which is numbered over all sets.
    values: BTreeMap<String, HashMap<(u64, u32), i64>>,
    kept: usize,
    is_cut: bool,
    /// Sets so far.
    count: u64,
}

/// A set of rings.
#[derive(Debug)]
struct Set {
    number: u64,
    region: Arc<PinnedRegion>,
    /// `None`: its program has not told the shape yet.
    source: Option<Source>,
}

impl Meter {
    /// Reads what has come since the last call. `all` is what there is now.
    pub(super) fn read(&mut self, all: Vec<OfClient>) -> Vec<KernelRecords> {
        let is_there = |client: u32, region: &Arc<PinnedRegion>| {
            all.iter().any(|one| one.client == AttachmentId(client) && Arc::ptr_eq(&one.region, region))
        };
        for (&client, metered) in &mut self.clients {
            metered.keep(|region| is_there(client, region));
        }
        self.clients.retain(|_, metered| !metered.sets.is_empty());
        for OfClient { client, info, region } in all {
            let metered = self.clients.entry(client.0).or_default();
            metered.command = info.command;
            if !metered.sets.iter().any(|set| Arc::ptr_eq(&set.region, &region)) {
                metered.sets.push(Set { number: metered.count, region, source: None });
                metered.count += 1;
            }
        }
        self.clients.iter_mut().map(|(&client, metered)| metered.read(client)).collect()
    }
}

impl Metered {
    /// Forgets sets that are gone, but what they have counted.
    fn keep(&mut self, is_there: impl Fn(&Arc<PinnedRegion>) -> bool) {
        let gone = &mut self.gone;
        self.sets.retain(|set| {
            let stays = is_there(&set.region);
            if !stays && let Some(source) = &set.source {
                *gone = gone.and(source.reader.found());
            }
            stays
        });
    }

    fn read(&mut self, client: u32) -> KernelRecords {
        let Self { sets, values, kept, is_cut, .. } = self;
        for set in sets.iter_mut() {
            if set.source.is_none() {
                set.source = Source::of(set.region.clone());
            }
            let Some(Source { reader, records, .. }) = &mut set.source else { continue };
            let number = set.number;
            // The last value of each ring and format: a name is looked for once.
            let mut last: HashMap<(u32, u16), i64> = HashMap::new();
            reader.poll(|ring, _, head: &Head, payload| {
                if let Some(Mark::Counter(format, value)) = Mark::of(head.kind, payload) {
                    if last.len() < VALUES || last.contains_key(&(ring, format)) {
                        last.insert((ring, format), value);
                    } else {
                        *is_cut = true;
                    }
                }
            });
            for ((ring, format), value) in last {
                let name =
                    records.format(format).map_or_else(|| format!("format {format}"), |text| text.text);
                if !values.contains_key(&name) && values.len() == NAMES {
                    *is_cut = true;
                    continue;
                }
                let of_name = values.entry(name).or_default();
                match of_name.get_mut(&(number, ring)) {
                    Some(old) => *old = value,
                    None if *kept == VALUES => *is_cut = true,
                    None => {
                        of_name.insert((number, ring), value);
                        *kept += 1;
                    }
                }
            }
        }
        let sources = self.sets.iter().filter_map(|set| set.source.as_ref());
        let found = sources.fold(self.gone, |all, source| all.and(source.reader.found()));
        let counters = self.values.iter().map(|(name, values)| KernelCounter {
            name: name.clone(),
            value: values.values().fold(0, |all: i64, value| all.saturating_add(*value)),
        });
        KernelRecords {
            client,
            command: self.command.clone(),
            written: found.records.saturating_add(found.overwritten),
            overwritten: found.overwritten,
            refused: found.refused,
            malformed: found.malformed,
            counters: counters.collect(),
            is_cut: self.is_cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attachment_state::ClientInfo;
    use gpunet_records::Shape;

    /// Pinned memory with rings, in which a test writes what a kernel would.
    struct Rings {
        region: Arc<PinnedRegion>,
        shape: Shape,
    }

    impl Rings {
        fn new(rings: u32, texts: u32) -> Self {
            let shape =
                Shape::new(rings, 64, 12, 0).and_then(|shape| shape.with_texts(texts)).expect("a shape");
            let region = PinnedRegion::create("gpunet-test", shape.bytes()).expect("memory");
            Self { region, shape }
        }

        fn store(&self, at: usize, word: u64) {
            let stored = rustix::io::pwrite(self.region.fd(), &word.to_le_bytes(), at as u64);
            assert_eq!(stored, Ok(8));
        }

        /// Tells the shape, as docs/telemetry.md has it.
        fn tell(&self) {
            let (rings, texts) = (self.shape.rings(), self.shape.texts());
            let words = [u64::from_le_bytes(*b"gpunetP1"), rings.into(), 6 | 6 << 8, u64::from(texts) << 32];
            words.into_iter().enumerate().for_each(|(at, word)| self.store(8 + at * 8, word));
        }

        /// Writes record `number` of a ring, in its first lap: the words of head and payload.
        fn write(&self, ring: usize, number: usize, words: &[u32]) {
            let rings = self.shape.bytes() - self.shape.rings() as usize * 64 * 64;
            let place = rings + (ring * 64 + number) * 64;
            for (at, &word) in words.iter().enumerate() {
                self.store(place + at * 8, u64::from(word) | 1 << 32);
            }
        }

        fn count(&self, ring: usize, number: usize, format: u32, value: i64) {
            let kind = u32::from(gpunet_records::Kind::COUNTER.raw()) | 12 << 16;
            self.write(ring, number, &[kind, 0, 0, 0, 0, format, value as u32, (value >> 32) as u32]);
        }

        fn of(&self, client: u32) -> OfClient {
            let info = ClientInfo::own("cpu");
            OfClient { client: AttachmentId(client), info, region: self.region.clone() }
        }
    }

    #[test]
    fn a_counter_is_the_sum_of_the_last_values_of_its_rings() {
        let (rings, mut meter) = (Rings::new(2, 8), Meter::default());
        assert_eq!(meter.read(vec![rings.of(1)])[0].written, 0, "it has told no shape yet");
        rings.tell();
        rings.count(0, 0, 3, 5);
        rings.count(0, 1, 3, -7);
        rings.count(1, 0, 3, 100);
        let found = meter.read(vec![rings.of(1)]);
        let counter = KernelCounter { name: "format 3".to_owned(), value: 93 };
        assert_eq!((found[0].written, &found[0].counters), (3, &vec![counter]));
        // What has been read stays, and is not read again.
        rings.count(1, 1, 3, 1);
        let found = meter.read(vec![rings.of(1)]);
        assert_eq!((found[0].written, found[0].counters[0].value), (4, -6));
    }

    #[test]
    fn sums_stay_when_a_set_goes_and_clients_go_with_their_last() {
        let (first, second, mut meter) = (Rings::new(1, 1), Rings::new(1, 1), Meter::default());
        [&first, &second].into_iter().for_each(Rings::tell);
        first.count(0, 0, 0, 1);
        second.count(0, 0, 0, 1);
        assert_eq!(meter.read(vec![first.of(1), second.of(1)])[0].written, 2);
        assert_eq!(meter.read(vec![second.of(1)])[0].written, 2);
        assert!(meter.read(Vec::new()).is_empty());
    }

    /// Whatever a program writes: names have a bound, lengths that cannot be are counted.
    #[test]
    fn what_a_program_invents_has_bounds() {
        let (rings, mut meter) = (Rings::new(2, 200), Meter::default());
        rings.tell();
        for at in 0..64 {
            rings.count(0, at, at as u32, 1);
            rings.count(1, at, 100 + at as u32, 1);
        }
        let found = meter.read(vec![rings.of(1)]);
        assert_eq!((found[0].counters.len(), found[0].is_cut), (NAMES, true));

        let (rings, mut meter) = (Rings::new(1, 1), Meter::default());
        rings.tell();
        rings.write(0, 0, &[u32::MAX, 0, 0, 0, 0]);
        rings.count(0, 1, u32::MAX, 1);
        let found = meter.read(vec![rings.of(1)]);
        assert_eq!((found[0].malformed, found[0].counters.len(), found[0].written), (1, 0, 1));
    }
}
