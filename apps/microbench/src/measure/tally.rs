//! What verified streams over many shapes have come to.

use crate::bench::Outcome;
use crate::report::{Recorder, Role, Row};

/// What shapes have come to.
#[derive(Default)]
pub(super) struct Tally {
    wrong: u64,
    verified: u64,
}

impl Tally {
    /// Takes down the bytes of a shape that were verified, or what was wrong.
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

    /// The verdict; says whether every byte came right.
    pub fn end(self, recorder: &mut Recorder) -> bool {
        let good = self.wrong == 0;
        let verdict = if good { "all shapes right" } else { "SOME SHAPES FAILED" };
        recorder.note(format!("{verdict}: {} bytes verified", self.verified));
        good
    }
}

/// Those shapes whose blocks have at most so many threads; an error if there are none, which nobody would call right.
pub(super) fn at_most<S>(shapes: Vec<S>, widest: u32, threads: impl Fn(&S) -> u32) -> Outcome<Vec<S>> {
    let shapes: Vec<S> = shapes.into_iter().filter(|shape| threads(shape) <= widest).collect();
    if shapes.is_empty() { Err(format!("no shape has at most {widest} threads").into()) } else { Ok(shapes) }
}
