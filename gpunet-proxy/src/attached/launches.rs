//! Which launch numbers of an attachment are in use, and which closed sockets running launches
//! still know.

use gpunet_abi::Handle;
use gpunet_abi::layout::LAUNCHES;
use gpunet_core::ids::LaunchId;
use std::collections::HashSet;

/// The launches of an attachment.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    /// A bit for each number in use.
    used: u64,
    /// Sockets that were closed for a launch that has ended, and a bit for each running launch that
    /// knows them.
    known: Vec<(Handle, u64)>,
    /// Sockets without a bind or connect that their launch left for later launches.
    kept: HashSet<Handle>,
    /// Open sockets of the host program.
    open: HashSet<Handle>,
    /// Sockets of the host program that are to be closed, and a bit for each running launch that
    /// knows them.
    closing: Vec<(Handle, u64)>,
}

/// Sockets that the end of a launch allows to be released or closed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Closed sockets that no running launch knows any more.
    pub(crate) free: Vec<Handle>,
    /// Sockets of the host program that no running launch knows any more, to be closed.
    pub(crate) close: Vec<Handle>,
}

impl Launches {
    /// Takes a number; `None` when all are in use.
    pub(crate) fn begin(&mut self) -> Option<LaunchId> {
        let launch = self.used.trailing_ones();
        if launch >= LAUNCHES {
            return None;
        }
        self.used |= 1 << launch;
        Some(LaunchId(launch))
    }

    /// Gives a number back: its kernels have ended.
    #[must_use]
    pub(crate) fn end(&mut self, launch: LaunchId) -> Ended {
        self.used &= !bit(launch);
        Ended { free: forget(&mut self.known, launch), close: forget(&mut self.closing, launch) }
    }

    /// Of the launches that ever used a socket, those that run: a bit for each. `host` is the host
    /// program's own.
    pub(crate) const fn running(&self, users: u64, host: LaunchId) -> u64 {
        users & self.used & !bit(host)
    }

    /// Notes a socket that the host program has opened.
    pub(crate) fn note_socket(&mut self, handle: Handle) {
        self.open.insert(handle);
    }

    /// Forgets a socket that the host program has closed, or left.
    pub(crate) fn forget_socket(&mut self, handle: Handle) {
        self.open.remove(&handle);
    }

    /// The open sockets of the host program, if only its own launch is left, so that no kernel runs
    /// that knows them.
    pub(crate) fn unknown_sockets(&self, host: LaunchId) -> Vec<Handle> {
        if self.used & !bit(host) == 0 { self.open.iter().copied().collect() } else { Vec::new() }
    }

    /// Notes a socket of the host program that is closed when these launches have ended.
    pub(crate) fn close_after(&mut self, handle: Handle, users: u64) {
        self.closing.push((handle, users));
    }

    /// Notes sockets that were closed for `launch`, which has ended, and which launches ever knew
    /// them. Returns those that no other running launch knows.
    #[must_use]
    pub(crate) fn retire(&mut self, launch: LaunchId, closed: &[Handle], users: &[u64]) -> Vec<Handle> {
        let running = self.used & !bit(launch);
        let mut free = Vec::new();
        for (&handle, &users) in closed.iter().zip(users) {
            match users & running {
                0 => free.push(handle),
                users => self.known.push((handle, users)),
            }
        }
        free
    }

    /// Returns which of the unused sockets belong to the launch. An earlier launch of that number
    /// has kept the others for later launches. `fresh` are all unused sockets at present.
    pub(crate) fn own(&mut self, fresh: Vec<(Handle, LaunchId)>, launch: LaunchId) -> Vec<Handle> {
        self.kept.retain(|kept| fresh.iter().any(|(handle, _)| handle == kept));
        let of_launch =
            fresh.into_iter().filter(|&(handle, by)| by == launch && !self.kept.contains(&handle));
        of_launch.map(|(handle, _)| handle).collect()
    }

    /// Records that a launch left unused sockets for later launches.
    pub(crate) fn keep(&mut self, fresh: Vec<Handle>) {
        self.kept.extend(fresh);
    }
}

/// Takes a launch out of the users of each socket, and those sockets out that have none left.
fn forget(known: &mut Vec<(Handle, u64)>, launch: LaunchId) -> Vec<Handle> {
    let mut free = Vec::new();
    known.retain_mut(|(handle, users)| {
        *users &= !bit(launch);
        if *users == 0 {
            free.push(*handle);
        }
        *users != 0
    });
    free
}

/// The bit of a launch among the users of a socket.
const fn bit(launch: LaunchId) -> u64 {
    1 << launch.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn socket(slot: u32) -> Handle {
        Handle::new(slot, 1)
    }

    #[test]
    fn sockets_that_nobody_else_knows_are_free_at_once() {
        let mut launches = Launches::default();
        let (a, b) = (launches.begin().unwrap(), launches.begin().unwrap());
        let closed = [socket(1), socket(2)];
        // The launch itself, and one that has ended long ago.
        assert_eq!(launches.retire(a, &closed, &[bit(a), bit(a) | 1 << 40]), closed);
        assert_eq!(launches.end(a).free, []);
        assert_eq!(launches.end(b).free, []);
    }

    #[test]
    fn sockets_that_others_know_are_free_when_the_last_of_them_has_ended() {
        let mut launches = Launches::default();
        let [a, b, c] = [0; 3].map(|_| launches.begin().unwrap());
        let all = bit(a) | bit(b) | bit(c);
        assert_eq!(launches.retire(a, &[socket(1), socket(2)], &[all, bit(a) | bit(c)]), []);
        assert_eq!(launches.end(a).free, []);
        // The number is another launch's now, which knows nothing of them.
        assert_eq!(launches.begin(), Some(a));
        assert_eq!(launches.end(c).free, [socket(2)]);
        assert_eq!(launches.end(a).free, []);
        assert_eq!(launches.end(b).free, [socket(1)]);
    }

    #[test]
    fn a_socket_that_was_kept_is_not_a_later_launch_s() {
        let mut launches = Launches::default();
        let a = launches.begin().unwrap();
        let other = LaunchId(a.0 + 1);
        let fresh = vec![(socket(1), a), (socket(2), other)];
        assert_eq!(launches.own(fresh.clone(), a), [socket(1)]);
        launches.keep(vec![socket(1)]);
        assert_eq!(launches.own(fresh, a), []);
        // It was used in the meantime, and its slot was taken for another socket.
        let anew = Handle::new(1, 2);
        assert_eq!(launches.own(vec![(anew, a)], a), [anew]);
        assert!(launches.kept.is_empty());
    }
}
