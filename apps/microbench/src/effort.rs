//! How much a run does.

/// How much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    Quick,
    Usual,
    Full,
}

impl Effort {
    /// One of three, by how much there is to do.
    pub fn of<T>(self, quick: T, usual: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Usual => usual,
            Self::Full => full,
        }
    }
}
