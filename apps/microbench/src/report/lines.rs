//! The text of a report, with one line for each row of a table, so that a comparison of two reports
//! shows which figures changed.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};
use std::io::{Result, Write};

/// The number of levels that have a line for each of their elements: the report, its tables, a
/// table, and its rows.
const LEVELS: usize = 4;

/// Returns a report as JSON.
///
/// # Errors
/// Those of serialization.
pub fn to_text(report: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::new();
    report.serialize(&mut Serializer::with_formatter(&mut text, Lines::default()))?;
    text.push(b'\n');
    // serde_json writes UTF-8.
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Breaks the lines of the upper levels only.
struct Lines {
    depth: usize,
    upper: PrettyFormatter<'static>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { depth: 0, upper: PrettyFormatter::with_indent(b" ") }
    }
}

impl Lines {
    const fn is_upper(&self) -> bool {
        self.depth <= LEVELS
    }

    /// Separates two elements of a lower level.
    fn separate<W: ?Sized + Write>(writer: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        if self.is_upper() { self.upper.begin_array(writer) } else { CompactFormatter.begin_array(writer) }
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        let is_upper = self.is_upper();
        self.depth -= 1;
        if is_upper { self.upper.end_array(writer) } else { CompactFormatter.end_array(writer) }
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if self.is_upper() {
            self.upper.begin_array_value(writer, first)
        } else {
            Self::separate(writer, first)
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        if self.is_upper() { self.upper.end_array_value(writer) } else { Ok(()) }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.depth += 1;
        if self.is_upper() { self.upper.begin_object(writer) } else { CompactFormatter.begin_object(writer) }
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        let is_upper = self.is_upper();
        self.depth -= 1;
        if is_upper { self.upper.end_object(writer) } else { CompactFormatter.end_object(writer) }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if self.is_upper() {
            self.upper.begin_object_key(writer, first)
        } else {
            Self::separate(writer, first)
        }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        if self.is_upper() { self.upper.end_object_value(writer) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn rows_are_lines() {
        let report =
            serde_json::json!({ "tables": [{ "rows": [{ "a": 1, "b": [2, {}] }, { "a": 3 }], "what": [] }] });
        let expected = r#"{
 "tables": [
  {
   "rows": [
    {"a": 1, "b": [2, {}]},
    {"a": 3}
   ],
   "what": []
  }
 ]
}
"#;
        assert_eq!(to_text(&report).unwrap(), expected);
    }

    #[test]
    fn a_report_that_was_written_is_written_so_again() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/report.json");
        let written = to_text(&super::super::read(&path).unwrap()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        // A figure that was read may differ in its last digit.
        let without_digits = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
        for (nth, (written, line)) in written.lines().zip(text.lines()).enumerate() {
            assert_eq!(without_digits(written), without_digits(line), "line {}", nth + 1);
        }
        assert_eq!(written.lines().count(), text.lines().count());
    }
}
