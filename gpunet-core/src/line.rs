//! A queue that anybody can leave.

use std::collections::BTreeMap;

/// A first-in, first-out queue whose entries can be taken out wherever they stand, in logarithmic time.
#[derive(Clone, Debug)]
pub struct Line<T> {
    entries: BTreeMap<i64, T>,
}

/// Where an entry stands. No other one ever stands there before it has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(i64);

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new() }
    }
}

impl<T> Line<T> {
    /// Adds an entry at the end.
    pub fn push_back(&mut self, entry: T) -> Place {
        let place = self.entries.last_key_value().map_or(0, |(place, _)| place + 1);
        self.entries.insert(place, entry);
        Place(place)
    }

    /// Adds an entry at the head.
    pub fn push_front(&mut self, entry: T) -> Place {
        let place = self.entries.first_key_value().map_or(0, |(place, _)| place - 1);
        self.entries.insert(place, entry);
        Place(place)
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

    /// Takes the entry that stands there.
    pub fn remove(&mut self, place: Place) -> Option<T> {
        self.entries.remove(&place.0)
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
    fn entries_leave_in_order_or_from_where_they_stand() {
        let mut line = Line::default();
        let [a, b, _] = ['a', 'b', 'c'].map(|entry| line.push_back(entry));
        assert_eq!(line.remove(b), Some('b'));
        assert_eq!(line.remove(b), None);
        assert_eq!((line.pop_front(), line.remove(a)), (Some('a'), None));
        let z = line.push_front('z');
        line.push_front('y');
        line.push_back('d');
        assert_eq!(line.iter().collect::<String>(), "yzcd");
        assert_eq!((line.front(), line.len()), (Some(&'y'), 4));
        assert_eq!(line.remove(z), Some('z'));
        assert_eq!([(); 3].map(|()| line.pop_front()), [Some('y'), Some('c'), Some('d')]);
        assert!(line.is_empty());
    }
}
