//! What is said to people, on stdout.

use std::io::{self, Write};

/// Says lines until one cannot be written: then nobody reads them any more.
#[derive(Default)]
pub struct Voice {
    unheard: Option<io::Error>,
}

impl Voice {
    /// Says a line, or some.
    pub fn say(&mut self, text: &str) {
        self.say_to(&mut io::stdout().lock(), text);
    }

    fn say_to(&mut self, out: &mut impl Write, text: &str) {
        if self.unheard.is_none() {
            self.unheard = writeln!(out, "{text}").and_then(|()| out.flush()).err();
        }
    }

    /// Why nobody reads any more.
    pub const fn unheard(&self) -> Option<&io::Error> {
        self.unheard.as_ref()
    }
}

/// Says a line on stderr. Where that cannot be written nobody is left to be told.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "gpunet-bench: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has room for some bytes.
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
    fn what_cannot_be_said_is_known() {
        let (mut voice, mut out) = (Voice::default(), Short(4));
        voice.say_to(&mut out, "one");
        assert!(voice.unheard().is_none());
        voice.say_to(&mut out, "two");
        assert!(voice.unheard().is_some());
        out.0 = 100;
        voice.say_to(&mut out, "three");
        assert_eq!(out.0, 100, "it stays silent");
    }
}
