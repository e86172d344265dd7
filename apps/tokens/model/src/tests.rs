//! The model on CPU blocks: beside numpy, in batches, with any number of lanes, and what it
//! refuses.
#![allow(unsafe_code)]

use crate::{
    CONTEXT, Cache, END, Model, Sampling, SequenceId, Step, StepError, VOCABULARY, WEIGHTS, Weights,
};
use gpunet_device::Group;
use gpunet_device::group::{Lanes, Solo};
use serde_json::Value;
use std::sync::Mutex;

/// What a row of a step gave: the next token and all logits.
type Row = (u8, Vec<f32>);

/// Memory for a cache, and the model that uses it.
struct Bench {
    model: Model,
    memory: Vec<Line>,
}

/// Memory aligned as a cache is.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

/// It lies behind a cache, which does not change it.
const GUARD: Line = Line([0xa5; 64]);

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.memory[self.memory.len() - 1].0, GUARD.0, "the cache is longer than it says");
        }
    }
}

impl Bench {
    fn new(sequences: usize, rows: usize) -> Self {
        let mut memory = vec![Line([0; 64]); Cache::bytes(sequences, rows).div_ceil(64)];
        memory.push(GUARD);
        let start = memory.as_mut_ptr().cast();
        // SAFETY: zeros, as many as needed, which live as long as the model.
        let cache = unsafe { Cache::new(start, sequences, rows) };
        let weights = Weights::check(WEIGHTS).unwrap();
        // SAFETY: the checked bytes, which live for ever.
        Self { model: unsafe { Model::new(weights, WEIGHTS.as_ptr(), cache) }, memory }
    }

    /// Computes steps with a group of so many lanes.
    fn run(&self, lanes: u32, steps: &[Vec<Step>]) -> Vec<Result<Vec<Row>, StepError>> {
        let results = Mutex::new(Vec::new());
        if lanes == 1 {
            self.run_lane(&Solo::new(0, 1), steps, &results);
        } else {
            std::thread::scope(|scope| {
                for lane in Lanes::group(0, 1, lanes) {
                    let results = &results;
                    scope.spawn(move || self.run_lane(&lane, steps, results));
                }
            });
        }
        results.into_inner().unwrap()
    }

    fn run_lane<G: Group>(
        &self,
        g: &G,
        steps: &[Vec<Step>],
        results: &Mutex<Vec<Result<Vec<Row>, StepError>>>,
    ) {
        for rows in steps {
            // Each lane puts its share.
            let there = rows.iter().take(self.model.cache().rows()).enumerate();
            for (index, &step) in there.skip(g.rank() as usize).step_by(g.size() as usize) {
                self.model.put(index, step);
            }
            let result = self.model.step(g, rows.len());
            if g.is_leader() {
                let row = |row| {
                    let logits = (0..VOCABULARY).map(|token| self.model.logit(row, token as u8)).collect();
                    (self.model.next(row), logits)
                };
                results.lock().unwrap().push(result.map(|()| (0..rows.len()).map(row).collect()));
            }
        }
    }

    /// As [`Bench::run`] with one lane and one step, which must succeed.
    fn step(&self, rows: &[Step]) -> Vec<Row> {
        self.run(1, &[rows.to_vec()]).remove(0).unwrap()
    }

    fn error(&self, rows: &[Step]) -> StepError {
        self.run(3, &[rows.to_vec()]).remove(0).unwrap_err()
    }
}

fn row(sequence: u32, position: usize, token: u8) -> Step {
    let position = position as u32;
    Step { sequence: SequenceId(sequence), token, position, sampling: Sampling::GREEDY }
}

/// Rows for a piece of a text, from a position on.
fn piece(sequence: u32, from: usize, text: &[u8]) -> Vec<Step> {
    text.iter().enumerate().map(|(at, &token)| row(sequence, from + at, token)).collect()
}

/// What numpy has computed.
struct Reference {
    header: Value,
    data: &'static [u8],
}

impl Reference {
    fn open() -> Self {
        let file: &'static [u8] = include_bytes!("../reference.safetensors");
        let (length, rest) = file.split_first_chunk::<8>().unwrap();
        let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
        Self { header: serde_json::from_slice(header).unwrap(), data }
    }

    fn bytes(&self, prompt: usize, name: &str) -> Option<&'static [u8]> {
        let offsets = &self.header.get(format!("{prompt}.{name}"))?["data_offsets"];
        let at = |index: usize| offsets[index].as_u64().unwrap() as usize;
        Some(&self.data[at(0)..at(1)])
    }

    fn numbers<T>(&self, prompt: usize, name: &str, from: fn([u8; 4]) -> T) -> Option<Vec<T>> {
        let words = self.bytes(prompt, name)?.chunks_exact(4);
        Some(words.map(|word| from(word.try_into().unwrap())).collect())
    }
}

/// How far logits may be from numpy's.
const TOLERANCE: f32 = 1e-2;

fn expect_near(prompt: usize, position: usize, found: &[f32], expected: &[f32]) {
    for (token, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            (found - expected).abs() <= TOLERANCE,
            "prompt {prompt}, position {position}, token {token}: {found}, but numpy has {expected}"
        );
    }
}

#[test]
fn logits_are_those_of_numpy() {
    let (reference, bench) = (Reference::open(), Bench::new(1, CONTEXT));
    let mut prompts = 0;
    while let Some(tokens) = reference.bytes(prompts, "tokens") {
        let positions = reference.numbers(prompts, "positions", u32::from_le_bytes).unwrap();
        let logits = reference.numbers(prompts, "logits", f32::from_le_bytes).unwrap();
        let rows = bench.step(&piece(0, 0, tokens));
        for (position, expected) in positions.into_iter().zip(logits.chunks_exact(VOCABULARY)) {
            expect_near(prompts, position as usize, &rows[position as usize].1, expected);
        }
        prompts += 1;
    }
    assert!(prompts >= 6, "the reference has {prompts} prompts");
}

#[test]
fn greedy_texts_are_those_of_numpy() {
    let (reference, bench) = (Reference::open(), Bench::new(1, 64));
    let mut compared = 0;
    for prompt in 0.. {
        let Some(expected) = reference.bytes(prompt, "greedy") else { break };
        let gaps = reference.numbers(prompt, "gaps", f32::from_le_bytes).unwrap();
        let tokens = reference.bytes(prompt, "tokens").unwrap();
        let (mut position, mut rows) = (tokens.len(), bench.step(&piece(0, 0, tokens)));
        for (&token, gap) in expected.iter().zip(gaps) {
            if gap < TOLERANCE {
                break;
            }
            assert_eq!(rows.last().unwrap().0, token, "prompt {prompt}, position {position}");
            rows = bench.step(&[row(0, position, token)]);
            (position, compared) = (position + 1, compared + 1);
        }
    }
    assert!(compared > 200, "only {compared} tokens were sure enough to compare");
}

#[test]
fn the_model_has_learnt_to_answer() {
    let bench = Bench::new(1, 64);
    let prompt = b"\0User: What is a packet?\nAssistant: ";
    let (mut text, mut position) = (Vec::new(), prompt.len());
    let mut next = bench.step(&piece(0, 0, prompt)).last().unwrap().0;
    while next != b'\n' && next != END && text.len() < 100 {
        text.push(next);
        next = bench.step(&[row(0, position, next)])[0].0;
        position += 1;
    }
    assert_eq!(
        String::from_utf8_lossy(&text),
        "A packet is a small piece of a message. It travels over the network."
    );
}

/// A text that sequence `index` of a test reads.
fn text_of(index: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at * 31 + at * 7 + index * 101) as u8).collect()
}

/// Sequences that begin, go on by pieces, end and begin again, and the rows of the steps that mix
/// them.
fn schedule() -> Vec<Vec<Step>> {
    // For each step, pieces: a sequence's memory, where the piece begins, and how long it is.
    let steps: [&[(u32, usize, usize)]; 8] = [
        &[(0, 0, 9)],
        &[(0, 9, 1), (2, 0, 5)],
        &[(2, 5, 1), (0, 10, 1), (1, 0, 140)],
        &[(1, 140, 1), (3, 0, 2)],
        &[(3, 2, 1), (2, 6, 3), (1, 141, 1), (0, 11, 1)],
        // Sequence 2 leaves; its memory is another's.
        &[(0, 12, 1), (2, 0, 4), (3, 3, 1)],
        &[(2, 4, 1)],
        &[(3, 4, 1), (1, 142, 2), (2, 5, 1), (0, 13, 1)],
    ];
    let piece_of = |&(sequence, from, length): &(u32, usize, usize), step: usize| {
        let text = text_of(sequence as usize + 10 * usize::from(sequence == 2 && step >= 5), 160);
        let mut rows = piece(sequence, from, &text[from..from + length]);
        for row in &mut rows {
            let temperature = if sequence % 2 == 1 { 0.8 } else { 0.0 };
            row.sampling = Sampling { temperature, seed: u64::from(sequence) };
        }
        rows
    };
    let rows = |(step, pieces): (usize, &&[(u32, usize, usize)])| {
        pieces.iter().flat_map(|piece| piece_of(piece, step)).collect()
    };
    steps.iter().enumerate().map(rows).collect()
}

#[test]
fn a_batch_gives_what_each_sequence_gives_alone() {
    let steps = schedule();
    let together = Bench::new(4, 160).run(1, &steps);
    for sequence in 0..4 {
        let alone = Bench::new(4, 1);
        for (rows, results) in steps.iter().zip(&together) {
            for (row, expected) in rows.iter().zip(results.as_ref().unwrap()) {
                if row.sequence == SequenceId(sequence) {
                    assert!(alone.step(&[*row])[0] == *expected, "{row:?}");
                }
            }
        }
    }
}

#[test]
fn any_number_of_lanes_gives_the_same() {
    let steps = schedule();
    let one = Bench::new(4, 160).run(1, &steps);
    for lanes in [2, 3, 8, 64] {
        assert!(Bench::new(4, 160).run(lanes, &steps) == one, "{lanes} lanes");
    }
}

#[test]
fn tokens_are_drawn_by_seed_and_position() {
    let draw = |seed| {
        let bench = Bench::new(1, 1);
        let (mut token, mut text) = (END, Vec::new());
        for position in 0..40 {
            let sampling = Sampling { temperature: 1.5, seed };
            token = bench.step(&[Step { sampling, ..row(0, position, token) }])[0].0;
            text.push(token);
        }
        text
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}

#[test]
fn a_sequence_ends_at_the_longest_context_and_the_others_go_on() {
    let bench = Bench::new(3, CONTEXT);
    // The sequences beside the one that fills its memory have tokens.
    let beside = |bench: &Bench| [bench.step(&[row(1, 3, b'd')]), bench.step(&[row(2, 3, b'd')])];
    let other = Bench::new(3, 3);
    for bench in [&bench, &other] {
        bench.step(&piece(1, 0, b"abc"));
        bench.step(&piece(2, 0, b"xyz"));
    }
    bench.step(&piece(0, 0, &text_of(0, CONTEXT)));
    assert!(beside(&bench) == beside(&other));
    bench.step(&piece(2, 0, &text_of(2, CONTEXT)));
    assert_eq!(bench.error(&[row(0, CONTEXT, 1)]), StepError::ContextFull);
    assert_eq!(bench.error(&[row(1, 0, 1), row(0, CONTEXT, 1)]), StepError::ContextFull);
    let expected = Bench::new(1, 1).step(&[row(0, 0, 1)]);
    assert!(bench.step(&[row(1, 0, 1)]) == expected);
    // Its memory takes another sequence, which does not see the old keys.
    assert!(bench.step(&[row(0, 0, 1)]) == expected);
}

#[test]
fn what_is_refused_leaves_the_cache_as_it_was() {
    let bench = Bench::new(2, 8);
    bench.step(&piece(0, 0, b"abc"));
    assert_eq!(bench.error(&[]), StepError::Rows);
    assert_eq!(bench.error(&[row(0, 3, b'd'); 9]), StepError::Rows);
    for (sequence, error) in [(2, StepError::UnknownSequence), (u32::MAX, StepError::UnknownSequence)] {
        assert_eq!(bench.error(&[row(0, 3, b'd'), row(sequence, 0, b'x')]), error);
    }
    for rows in [
        // Left out, repeated, and begun in the middle.
        vec![row(0, 4, b'd')],
        vec![row(0, 2, b'd')],
        vec![row(1, 1, b'd')],
        vec![row(0, 3, b'd'), row(0, 5, b'e')],
        vec![row(0, 3, b'd'), row(0, 3, b'e')],
        vec![row(0, 3, b'd'), row(0, 0, b'e')],
        // Not together, in both orders, and twice from the start.
        vec![row(0, 3, b'd'), row(1, 0, b'x'), row(0, 4, b'e')],
        vec![row(0, 4, b'e'), row(1, 0, b'x'), row(0, 3, b'd')],
        vec![row(0, 3, b'd'), row(1, 0, b'x'), row(0, 3, b'd')],
        vec![row(0, 0, b'd'), row(1, 0, b'x'), row(0, 0, b'd')],
    ] {
        assert_eq!(bench.error(&rows), StepError::OutOfOrder, "{rows:?}");
    }
    let other = Bench::new(2, 8);
    other.step(&piece(0, 0, b"abc"));
    assert!(bench.step(&[row(0, 3, b'd')]) == other.step(&[row(0, 3, b'd')]));
}

#[test]
#[should_panic(expected = "no such row")]
fn a_row_beyond_the_cache_is_no_row() {
    Bench::new(1, 2).model.put(2, row(0, 0, 0));
}

/// A file whose header was changed, with its length.
fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (length, rest) = WEIGHTS.split_first_chunk::<8>().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut value: Value = serde_json::from_slice(header).unwrap();
    change(&mut value);
    let mut text = value.to_string().into_bytes();
    text.resize((text.len() + 8).next_multiple_of(64) - 8, b' ');
    [&(text.len() as u64).to_le_bytes()[..], &text, data].concat()
}

#[test]
fn weights_are_checked() {
    let refuse = |file: &[u8], sentence: &str| {
        assert_eq!(Weights::check(file).unwrap_err().to_string(), sentence);
    };
    let no_header = "not a safetensors file: its header cannot be read";
    refuse(b"", no_header);
    refuse(&u64::MAX.to_le_bytes(), no_header);
    refuse(b"\x04\0\0\0\0\0\0\0null", no_header);
    assert!(Weights::check(&changed(|_| {})).is_ok());
    refuse(
        &changed(|header| _ = header.as_object_mut().unwrap().remove("layers.1.up")),
        "the weights lack the tensor layers.1.up",
    );
    let place = "the tensor embedding must lie inside the file, at a multiple of 16 bytes";
    let shape = "the tensor embedding must be F16 of shape [256, 128]";
    let refuse_change = |key: &str, value: Value| {
        refuse(&changed(|header| header["embedding"][key] = value), shape);
    };
    refuse_change("dtype", "BF16".into());
    refuse_change("shape", [128, 256].as_slice().into());
    refuse_change("shape", "many".into());
    refuse_change("data_offsets", [64, 0].as_slice().into());
    for start in [8, u64::MAX - 65_536, 1 << 30] {
        let offsets = [start, start + 65_536];
        refuse(&changed(|header| header["embedding"]["data_offsets"] = offsets.as_slice().into()), place);
    }
    refuse(&changed(|header| header["embedding"]["data_offsets"] = Value::Null), place);
    let last = "the tensor layers.2.down must lie inside the file, at a multiple of 16 bytes";
    refuse(&WEIGHTS[..WEIGHTS.len() - 1], last);
    let mut infinite = WEIGHTS.to_vec();
    let end = infinite.len();
    infinite[end - 2..].copy_from_slice(&0xfc00u16.to_le_bytes());
    refuse(&infinite, "the tensor layers.2.down has a weight that is not finite");
}
