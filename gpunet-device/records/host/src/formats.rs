//! The formats of a kernel's lines: those of the program's table, and those in the rings' memory.

use crate::rings::{Reader, Texts};
use gpunet_records::{FormatInfo, FormatText, Line, NoLine, Record};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A kernel sends a text before its first line, but the line may be seen first: for so long it is
/// waited for, once for each text.
const TEXT_COMES_WITHIN: Duration = Duration::from_millis(1);

/// Makes lines of records.
///
/// # Examples
///
/// ```no_run
/// # use gpunet_records_host::{Formats, Reader};
/// # fn example(mut reader: Reader) {
/// let mut formats = Formats::new(&reader, &[]);
/// reader.poll(|record| {
///     if let Ok(line) = formats.line(record) {
///         println!("{line}");
///     }
/// });
/// # }
/// ```
#[derive(Debug)]
pub struct Formats {
    table: &'static [FormatInfo],
    texts: Texts,
    /// `None`: it has not come, and was waited for.
    known: HashMap<u16, Option<FormatText>>,
}

impl Formats {
    /// The formats of a reader's rings; `table` are those that the program knows.
    #[must_use]
    pub fn new(reader: &Reader, table: &'static [FormatInfo]) -> Self {
        Self { table, texts: reader.texts(), known: HashMap::new() }
    }

    /// The line of a record.
    ///
    /// # Errors
    /// [`NoLine`].
    pub fn line(&mut self, record: &Record<'_>) -> Result<Line, NoLine> {
        let number = record.head.kind.format().ok_or(NoLine::OtherKind)?;
        if usize::from(number) < self.table.len() {
            return Line::of(record, self.table);
        }
        self.text(number).and_then(|format| Line::by_text(record, format))
    }

    /// The name of the span or counter of a record.
    ///
    /// # Errors
    /// [`NoLine`].
    pub fn name(&mut self, record: &Record<'_>) -> Result<&str, NoLine> {
        let number = record.mark().ok_or(NoLine::OtherKind)?.format();
        match self.table.get(usize::from(number)) {
            Some(format) => Ok(format.text),
            None => self.text(number).map(|format| format.text.as_str()),
        }
    }

    /// The text of the format that a record names ([`Record::format`]), as [`ChromeTrace::put`]
    /// takes it. `None`: it names none, or one whose text has not come.
    ///
    /// [`ChromeTrace::put`]: gpunet_records::ChromeTrace::put
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use gpunet_records_host::{ChromeTrace, FormatInfo, Formats, Reader};
    /// # fn example(mut reader: Reader, table: &'static [FormatInfo]) -> std::io::Result<()> {
    /// let mut formats = Formats::new(&reader, table);
    /// let file = std::fs::File::create("trace.json")?;
    /// let mut trace = ChromeTrace::begin(file, 4711, "my program");
    /// reader.poll(|record| trace.put(record, formats.format(record)));
    /// trace.missing(reader.found());
    /// trace.finish()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn format(&mut self, record: &Record<'_>) -> Option<&FormatText> {
        self.text(record.format()?).ok()
    }

    /// A format in the rings' memory, which has those of the table, too.
    fn text(&mut self, number: u16) -> Result<&FormatText, NoLine> {
        if !self.texts.has_place(number) {
            return Err(NoLine::UnknownFormat(number));
        }
        let Self { texts, known, .. } = self;
        let format = known.entry(number).or_insert_with(|| {
            let began = Instant::now();
            loop {
                let text = texts.get(number);
                if text.is_some() || began.elapsed() > TEXT_COMES_WITHIN {
                    return text;
                }
                std::hint::spin_loop();
            }
        });
        if format.is_none() {
            *format = texts.get(number);
        }
        format.as_ref().ok_or(NoLine::NoText(number))
    }
}
