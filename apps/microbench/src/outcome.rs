//! What can fail: this program prints why in a line and ends, so an error is its text.

use std::error::Error;

/// A result, or the reason to print.
pub type Outcome<T> = Result<T, Box<dyn Error>>;
