//! The text for people on stdout and stderr.

use std::io::{self, Write};

/// Prints to stdout until a write fails, because it has no reader from then on.
#[derive(Default)]
pub struct Output {
    error: Option<io::Error>,
}

impl Output {
    /// Prints one or more lines.
    pub fn print(&mut self, text: &str) {
        self.print_to(&mut io::stdout().lock(), text);
    }

    fn print_to(&mut self, out: &mut impl Write, text: &str) {
        if self.error.is_none() {
            self.error = writeln!(out, "{text}").and_then(|()| out.flush()).err();
        }
    }

    /// Returns the error of the write that failed, if one did.
    pub const fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }
}

/// Prints a line to stderr. A failure is ignored, because there is no other place to report it.
pub fn print_error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "gpunet-bench: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer with room for some bytes.
    struct Short(usize);

    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.0);
            self.0 -= n;
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_failed_write_is_kept_and_ends_the_output() {
        let (mut output, mut out) = (Output::default(), Short(4));
        output.print_to(&mut out, "one");
        assert!(output.error().is_none());
        output.print_to(&mut out, "two");
        assert!(output.error().is_some());
        out.0 = 100;
        output.print_to(&mut out, "three");
        assert_eq!(out.0, 100, "nothing more is written");
    }
}
