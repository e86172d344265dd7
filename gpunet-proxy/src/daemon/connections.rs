//! How many connections of a kind a user may have.
//!
//! A few users together must not keep the others out: the last places are reserved for users
//! without a connection, and root has places of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The bounds of a kind of connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Of one user.
    pub(super) each: usize,
    /// Of all users together but root.
    pub(super) all: usize,
    /// How many of these are reserved for users who have none yet.
    pub(super) kept: usize,
    /// Of root.
    pub(super) root: usize,
}

/// The connections of a kind. `None` stands for all users that may not attach: one person can be
/// thousands of users (subuid).
#[derive(Debug)]
pub(super) struct Connections {
    bounds: Bounds,
    held: Mutex<HashMap<Option<u32>, usize>>,
}

/// A connection that counts until this is dropped.
#[derive(Debug)]
pub(super) struct CountedConnection {
    connections: Arc<Connections>,
    user: Option<u32>,
}

const ROOT: Option<u32> = Some(0);

impl Connections {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, held: Mutex::default() })
    }

    /// Counts one more of a user, of whom `closing` are on their way out; `None` if it has too
    /// many, or all have.
    pub(super) fn enter(self: &Arc<Self>, user: Option<u32>, closing: usize) -> Option<CountedConnection> {
        let Bounds { each, all, kept, root } = self.bounds;
        let mut held = super::lock(&self.held);
        let own = held.get(&user).copied().unwrap_or(0);
        let of_users: usize = held.iter().filter(|(user, _)| **user != ROOT).map(|(_, count)| count).sum();
        let free = all.saturating_sub(of_users);
        let fits = match user {
            ROOT => own + closing < root,
            _ => own + closing < each && free > if own == 0 { 0 } else { kept },
        };
        if !fits {
            return None;
        }
        held.insert(user, own + 1);
        Some(CountedConnection { connections: self.clone(), user })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut held = super::lock(&self.connections.held);
        if let Some(count) = held.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { each: 64, all: 160, kept: 64, root: 16 };

    /// Takes as many as that user gets.
    fn all_of(connections: &Arc<Connections>, user: Option<u32>) -> Vec<CountedConnection> {
        std::iter::from_fn(|| connections.enter(user, 0)).collect()
    }

    #[test]
    fn a_few_users_leave_places_for_others_and_for_root() {
        let connections = Connections::new(BOUNDS);
        let greedy: Vec<_> = [Some(1), Some(2), Some(3), None].map(|user| all_of(&connections, user)).into();
        assert_eq!(greedy.iter().map(Vec::len).collect::<Vec<_>>(), [64, 32, 1, 1]);
        let others: Vec<_> =
            (10..72).map(|user| connections.enter(Some(user), 0).expect("a place is kept")).collect();
        assert!(connections.enter(Some(99), 0).is_none(), "all of them are taken");
        assert_eq!(all_of(&connections, Some(0)).len(), 16);
        drop(others);
        assert!(connections.enter(Some(3), 0).is_none() && connections.enter(Some(99), 0).is_some());
        drop(greedy);
        assert_eq!(all_of(&connections, Some(3)).len(), 64);
        assert!(super::super::lock(&connections.held).is_empty());
    }

    #[test]
    fn connections_that_are_being_closed_count() {
        let connections = Connections::new(BOUNDS);
        assert!(connections.enter(Some(1), 64).is_none() && connections.enter(Some(0), 16).is_none());
        let own = (0..4).map(|_| connections.enter(Some(1), 60)).collect::<Option<Vec<_>>>();
        assert!(own.is_some() && connections.enter(Some(1), 60).is_none());
    }
}
