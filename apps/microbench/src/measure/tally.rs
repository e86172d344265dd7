//! The results of verified streams over many shapes.

use crate::outcome::Outcome;
use crate::report::{Recorder, Role, Row};

/// Counts of verified bytes and of failed shapes.
#[derive(Default)]
pub(super) struct Tally {
    wrong: u64,
    verified: u64,
}

impl Tally {
    /// Records the verified bytes of a shape, or its error.
    pub fn take(&mut self, recorder: &mut Recorder, name: &str, verdict: Outcome<u64>) {
        match verdict {
            Ok(bytes) => {
                self.verified += bytes;
                recorder.row(Row::number(Role::Gpunet, name, bytes as f64, "bytes verified"));
            }
            Err(error) => {
                self.wrong += 1;
                recorder.note(format!("WRONG {name}: {error}"));
            }
        }
    }

    /// Records the verdict. Returns whether every byte arrived intact.
    pub fn end(self, recorder: &mut Recorder) -> bool {
        let good = self.wrong == 0;
        let verdict = if good { "all shapes right" } else { "SOME SHAPES FAILED" };
        recorder.note(format!("{verdict}: {} bytes verified", self.verified));
        good
    }
}

/// Returns the shapes whose blocks have at most `widest` threads. It is an error if there are none,
/// because nothing would be checked.
pub(super) fn at_most<S>(shapes: Vec<S>, widest: u32, threads: impl Fn(&S) -> u32) -> Outcome<Vec<S>> {
    let shapes: Vec<S> = shapes.into_iter().filter(|shape| threads(shape) <= widest).collect();
    if shapes.is_empty() { Err(format!("no shape has at most {widest} threads").into()) } else { Ok(shapes) }
}
