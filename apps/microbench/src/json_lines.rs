//! JSON values, one a line, between this program and the processes of it that it starts.

use crate::outcome::Outcome;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead, Write};

/// Writes a value as a line.
pub fn write(out: &mut impl Write, value: &impl Serialize) -> Outcome<()> {
    writeln!(out, "{}", serde_json::to_string(value)?)?;
    Ok(out.flush()?)
}

/// Reads the next line's value; none at the end.
pub fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> Outcome<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
