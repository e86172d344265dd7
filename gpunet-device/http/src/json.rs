//! JSON without a heap: read where it lies, and written into an answer.
//!
//! | file | holds |
//! |---|---|
//! | `reader` | [`Reader`]: values one after another, as the program asks for them |
//! | `text` | [`Text`] and [`Number`]: a string and a number of a document |
//! | `writer` | [`Writer`]: values into a [`crate::Body`] |

mod reader;
mod text;
mod writer;

pub use reader::{Kind, Reader};
pub use text::{Number, Text};
pub use writer::Writer;

/// The document is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is no JSON. So many bytes of it are right.
    Syntax(usize),
    /// Arrays and objects lie too deep in each other.
    Depth,
    /// There is a value of another kind there.
    Kind,
}
