//! How much work a run does.

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Quick,
    Usual,
    Full,
}

impl Effort {
    /// Returns one of three values, depending on the effort.
    pub fn of<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}
