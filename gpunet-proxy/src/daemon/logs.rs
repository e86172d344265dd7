//! The memory in which programs record and print: the daemon makes it, and keeps it for a while
//! after a program has ended, however it did. It looks inside for metrics only (`meter`).
//!
//! What a user has beyond its bounds is dropped, the oldest of ended programs first: the program
//! keeps its own mapping.

use super::lock;
use crate::model::attachment_state::{AttachmentState, ClientInfo};
use gpu_usermap::PinnedRegion;
use gpunet_core::ids::AttachmentId;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Memory of one user, and of all.
const BYTES_OF_USER: usize = 256 << 20;
const BYTES: usize = 1 << 30;
/// Sets of rings of one program: a frame has descriptors for as many.
const SETS: usize = 16;
/// Sets of all programs.
const ALL_SETS: usize = 512;
/// How long the memory of an ended program is kept.
const KEPT_FOR: Duration = Duration::from_secs(15 * 60);

/// The memory of one set of rings.
struct Kept {
    client: AttachmentId,
    info: ClientInfo,
    region: Arc<PinnedRegion>,
    /// When its program was seen to have ended.
    ended: Option<Instant>,
}

/// The memory of one set of rings, and whose it is.
pub(super) struct OfClient {
    pub(super) client: AttachmentId,
    pub(super) info: ClientInfo,
    pub(super) region: Arc<PinnedRegion>,
}

/// What a program has recorded.
pub(super) struct Found {
    pub(super) info: ClientInfo,
    pub(super) has_ended: bool,
    pub(super) regions: Vec<Arc<PinnedRegion>>,
}

/// The memory of all programs, the oldest first.
#[derive(Default)]
pub(super) struct Logs(Mutex<Vec<Kept>>);

impl Logs {
    /// Checks that a user may have memory of that length.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn check(len: u64) -> Result<usize, String> {
        usize::try_from(len).ok().filter(|&len| (1..=BYTES_OF_USER).contains(&len)).ok_or_else(|| {
            format!("{len} bytes of records, where a user has {BYTES_OF_USER}: make fewer or smaller rings")
        })
    }

    /// Keeps memory that was made for a program. Other memory of its user makes room for it.
    ///
    /// # Errors
    /// The reason why there is no room.
    pub(super) fn keep(&self, state: &AttachmentState, region: &Arc<PinnedRegion>) -> Result<(), String> {
        let (client, info, uid) = (state.id, state.client.clone(), state.client.uid);
        let mut all = lock(&self.0);
        forget_old(&mut all);
        let of_user = |kept: &Kept| kept.info.uid == uid;
        let bytes = |all: &[Kept], is: &dyn Fn(&Kept) -> bool| {
            all.iter().filter(|kept| is(kept)).map(|kept| kept.region.len()).sum::<usize>() + region.len()
        };
        // The oldest of an ended program, or else the oldest.
        let drop_one = |all: &mut Vec<Kept>, is: &dyn Fn(&Kept) -> bool| {
            let ended = all.iter().position(|kept| is(kept) && kept.ended.is_some());
            ended.or_else(|| all.iter().position(is)).map(|at| drop(all.remove(at))).is_some()
        };
        let of_client = |kept: &Kept| kept.client == client;
        while all.iter().filter(|kept| of_client(kept)).count() >= SETS && drop_one(&mut all, &of_client) {}
        while bytes(&all, &of_user) > BYTES_OF_USER && drop_one(&mut all, &of_user) {}
        let ended = |kept: &Kept| kept.ended.is_some();
        while (bytes(&all, &|_| true) > BYTES || all.len() >= ALL_SETS) && drop_one(&mut all, &ended) {}
        if bytes(&all, &|_| true) > BYTES || all.len() >= ALL_SETS {
            return Err("all programs together have too many records".to_owned());
        }
        all.push(Kept { client, info, region: region.clone(), ended: None });
        Ok(())
    }

    /// Notes that a program has ended.
    pub(super) fn ended(&self, client: AttachmentId) {
        let now = Instant::now();
        lock(&self.0).iter_mut().filter(|kept| kept.client == client).for_each(|kept| {
            kept.ended.get_or_insert(now);
        });
    }

    /// Drops what was kept for long enough.
    pub(super) fn forget_old(&self) {
        forget_old(&mut lock(&self.0));
    }

    /// All that is kept.
    pub(super) fn all(&self) -> Vec<OfClient> {
        let of_client = |kept: &Kept| OfClient {
            client: kept.client,
            info: kept.info.clone(),
            region: kept.region.clone(),
        };
        lock(&self.0).iter().map(of_client).collect()
    }

    /// What a program has recorded, and the numbers of all programs that have: those of a user, or
    /// all.
    pub(super) fn find(&self, client: AttachmentId, of: Option<u32>) -> (Option<Found>, Vec<u32>) {
        let all = lock(&self.0);
        let visible = || all.iter().filter(|kept| of.is_none_or(|uid| kept.info.uid == uid));
        let mut numbers: Vec<u32> = visible().map(|kept| kept.client.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut sets = visible().filter(|kept| kept.client == client).peekable();
        let found = sets.peek().map(|first| (first.info.clone(), first.ended.is_some()));
        let regions = sets.map(|kept| kept.region.clone()).collect();
        (found.map(|(info, has_ended)| Found { info, has_ended, regions }), numbers)
    }
}

fn forget_old(all: &mut Vec<Kept>) {
    all.retain(|kept| kept.ended.is_none_or(|ended| ended.elapsed() < KEPT_FOR));
}
