//! The result type: this program prints the reason of a failure in one line and ends, so an error
//! is only a text.

use std::error::Error;

/// A result, or the reason to print.
pub type Outcome<T> = Result<T, Box<dyn Error>>;
