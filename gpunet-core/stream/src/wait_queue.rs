//! A queue whose entries may leave at any time.

use std::collections::BTreeMap;

/// A first-in, first-out queue whose entries can be removed by key, in logarithmic time.
#[derive(Clone, Debug)]
pub struct WaitQueue<T> {
    entries: BTreeMap<i64, T>,
}

/// Names an entry of a [`WaitQueue`]; not used again before the entry has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitKey(i64);

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<T> WaitQueue<T> {
    /// Adds an entry at the end.
    pub fn push_back(&mut self, entry: T) -> WaitKey {
        let key = self.entries.last_key_value().map_or(0, |(key, _)| key + 1);
        self.entries.insert(key, entry);
        WaitKey(key)
    }

    /// Adds an entry at the head.
    pub fn push_front(&mut self, entry: T) -> WaitKey {
        let key = self.entries.first_key_value().map_or(0, |(key, _)| key - 1);
        self.entries.insert(key, entry);
        WaitKey(key)
    }

    /// The entry at the head.
    #[must_use]
    pub fn front(&self) -> Option<&T> {
        self.entries.first_key_value().map(|(_, entry)| entry)
    }

    /// Takes the entry at the head.
    pub fn pop_front(&mut self) -> Option<T> {
        self.entries.pop_first().map(|(_, entry)| entry)
    }

    /// Takes the entry with that key.
    pub fn remove(&mut self, key: WaitKey) -> Option<T> {
        self.entries.remove(&key.0)
    }

    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, the head first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_leave_in_order_or_by_key() {
        let mut queue = WaitQueue::default();
        let [a, b, _] = ['a', 'b', 'c'].map(|entry| queue.push_back(entry));
        assert_eq!(queue.remove(b), Some('b'));
        assert_eq!(queue.remove(b), None);
        assert_eq!((queue.pop_front(), queue.remove(a)), (Some('a'), None));
        let z = queue.push_front('z');
        queue.push_front('y');
        queue.push_back('d');
        assert_eq!(queue.iter().collect::<String>(), "yzcd");
        assert_eq!((queue.front(), queue.len()), (Some(&'y'), 4));
        assert_eq!(queue.remove(z), Some('z'));
        assert_eq!([(); 3].map(|()| queue.pop_front()), [Some('y'), Some('c'), Some('d')]);
        assert!(queue.is_empty());
    }
}
