//! JSON values, one per line, between this program and the child processes of it.

use crate::outcome::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Write};

/// Writes a value as a line.
pub fn write(out: &mut impl Write, value: &impl Serialize) -> Outcome<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

/// Reads the value of the next line; `None` at the end.
pub fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> Outcome<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
