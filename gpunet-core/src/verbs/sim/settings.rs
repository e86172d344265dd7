//! What a simulated network is like, and the dice it throws.

use std::ops::RangeInclusive;
use std::time::Duration;

/// What a [`Fabric`](super::Fabric) is like. Start from [`FabricSettings::new`] and change fields.
#[derive(Clone, Debug)]
pub struct FabricSettings {
    /// Seed of every delay and of every fault that comes by chance.
    pub seed: u64,
    /// Time that a request takes to the peer, and again its acknowledgement back; drawn for each.
    /// Order within a connection is kept. Zero: everything happens inside the call that causes it.
    pub delay: RangeInclusive<Duration>,
    /// The cards are iWARP: no immediate data, private data of exact length, a message that finds
    /// no receive ends the connection.
    pub iwarp: bool,
    /// Most work requests of a queue.
    pub max_depth: u32,
    /// Time after which a request without an acknowledgement is sent again.
    pub ack_timeout: Duration,
    /// Time after which an unacknowledged request is given up
    /// ([`CompletionStatus::RetryExceeded`]).
    ///
    /// [`CompletionStatus::RetryExceeded`]: crate::verbs::CompletionStatus::RetryExceeded
    pub retry_time: Duration,
    /// Time after which an unanswered connect fails.
    pub connect_timeout: Duration,
    /// How long a sender waits when its message found no receive, before the receiver shortens it:
    /// 655.36 ms, as rdma_cm leaves it.
    pub rnr_timer: Duration,
    /// The same after [`Endpoint::shorten_rnr_timer`](crate::verbs::Endpoint::shorten_rnr_timer).
    pub short_rnr_timer: Duration,
    /// Time that [`Endpoint::arm`](crate::verbs::Endpoint::arm) takes before it has an effect;
    /// drawn for each call. A completion in that time raises no event, so that those who do not
    /// poll after arming are found out.
    pub arm_delay: RangeInclusive<Duration>,
    /// Bytes that a host can register.
    pub memory_limit: u64,
    /// The cards can register dma-bufs. The simulated card maps them with mmap(2), so a memfd will
    /// do.
    pub dma_buf: bool,
    /// Chance, in thousandths, that a request is lost on its way and sent again.
    pub loss_per_mille: u32,
    /// Chance, in millionths, that a request is lost every time until it is given up.
    pub failure_per_million: u32,
}

impl FabricSettings {
    /// A RoCE-like network without delays or faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            delay: Duration::ZERO..=Duration::ZERO,
            iwarp: false,
            max_depth: 4096,
            ack_timeout: Duration::from_millis(5),
            retry_time: Duration::from_millis(200),
            connect_timeout: Duration::from_secs(60),
            rnr_timer: Duration::from_micros(655_360),
            short_rnr_timer: Duration::from_micros(640),
            arm_delay: Duration::ZERO..=Duration::ZERO,
            memory_limit: u64::MAX,
            dma_buf: false,
            loss_per_mille: 0,
            failure_per_million: 0,
        }
    }
}

/// A seeded generator (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// The dice of one queue pair: what it throws depends on the seed and its number alone, not on
    /// other connections.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut dice = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        dice.next();
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True in `chance` of `out_of` cases.
    pub fn hits(&mut self, chance: u32, out_of: u32) -> bool {
        self.next() % u64::from(out_of) < u64::from(chance)
    }

    /// A time within the range.
    pub fn within(&mut self, range: &RangeInclusive<Duration>) -> Duration {
        let spread = range.end().saturating_sub(*range.start()).as_nanos() as u64;
        *range.start() + Duration::from_nanos(self.next() % (spread + 1))
    }
}
