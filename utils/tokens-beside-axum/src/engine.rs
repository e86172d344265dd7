//! The loop of the model's thread: requests join, a step, tokens leave.

use crate::plan::{Plan, Row, TILE_ROWS};
use crate::step::Model;
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError};

/// The most tokens of a sequence.
pub const CONTEXT: usize = 512;
/// The token that begins and ends a text.
const END: u8 = 0;

/// What a client asks for.
pub struct Request {
    pub prompt: Vec<u8>,
    pub max_tokens: usize,
    pub temperature: f32,
    pub seed: u64,
    pub ignores_end: bool,
    /// Where its tokens go.
    pub tokens: UnboundedSender<Made>,
}

/// What the model has made for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    Token(u8),
    /// `length`: as many tokens as were asked for; else the text's own end.
    End {
        is_length: bool,
    },
}

/// A request in the batch.
struct Running {
    request: Request,
    /// The place of its keys and values.
    sequence: u32,
    /// Tokens that are computed.
    position: usize,
    made: usize,
    last: u8,
    /// This step computes a piece of its prompt.
    is_prompt: bool,
    /// Its row in this step whose token counts, if the prompt is over.
    row: Option<usize>,
}

impl Running {
    /// Adds its rows to the plan: a piece of the prompt, or the last token.
    fn plan(&mut self, plan: &mut Plan) {
        let prompt = 1 + self.request.prompt.len();
        let (sequence, temperature, seed) = (self.sequence, self.request.temperature, self.request.seed);
        let row = |position: usize, token: u8| Row {
            sequence,
            position: position as u32,
            token: token.into(),
            temperature,
            seed,
            reserved: 0,
        };
        if !self.is_prompt {
            self.row = Some(plan.single(row(self.position, self.last)));
            self.position += 1;
            return;
        }
        let end = prompt.min(self.position + TILE_ROWS);
        let token = |at: usize| if at == 0 { END } else { self.request.prompt[at - 1] };
        let last = plan.prompt((self.position..end).map(|at| row(at, token(at))));
        self.position = end;
        self.row = (end == prompt).then_some(last);
    }

    /// Takes its token of a step. Returns whether it goes on.
    fn take(&mut self, next: &[u8]) -> bool {
        let Some(row) = self.row else { return !self.request.tokens.is_closed() };
        let token = next[row];
        let tokens = &self.request.tokens;
        if token == END && !self.request.ignores_end {
            let _ = tokens.send(Made::End { is_length: false });
            return false;
        }
        (self.last, self.made) = (token, self.made + 1);
        if tokens.send(Made::Token(token)).is_err() {
            return false;
        }
        if self.made == self.request.max_tokens {
            let _ = tokens.send(Made::End { is_length: true });
            return false;
        }
        true
    }
}

/// Serves requests until their senders are gone. A step begins `interval` after the one before, at
/// least.
pub fn run(
    mut model: Model,
    sequences: usize,
    interval: Duration,
    requests: &mut UnboundedReceiver<Request>,
) -> Result<(), Box<dyn Error>> {
    let (mut running, mut plan) = (Vec::<Running>::with_capacity(sequences), Plan::default());
    let mut free: Vec<u32> = (0..u32::try_from(sequences)?).rev().collect();
    let mut step_at = Instant::now();
    loop {
        while let Some(sequence) = free.last().copied() {
            let request = if running.is_empty() {
                let Some(request) = requests.blocking_recv() else { return Ok(()) };
                request
            } else {
                match requests.try_recv() {
                    Ok(request) => request,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return Ok(()),
                }
            };
            if !request.tokens.is_closed() {
                free.pop();
                running.push(Running {
                    request,
                    sequence,
                    position: 0,
                    made: 0,
                    last: END,
                    is_prompt: true,
                    row: None,
                });
            }
        }
        // Requests that come meanwhile join this step.
        if let Some(left) = step_at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
            continue;
        }
        step_at = Instant::now() + interval;
        plan.clear();
        // Rows of prompts come first.
        for it in &mut running {
            it.is_prompt = it.position <= it.request.prompt.len();
            if it.is_prompt {
                it.plan(&mut plan);
            }
        }
        running.iter_mut().filter(|it| !it.is_prompt).for_each(|it| it.plan(&mut plan));
        plan.divide(model.blocks);
        let next = model.step(&plan)?;
        running.retain_mut(|it| {
            let goes_on = it.take(next);
            if !goes_on {
                free.push(it.sequence);
            }
            goes_on
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    #[test]
    fn a_prompt_takes_steps_of_a_tile_and_then_a_row_each() {
        let (tokens, mut made) = unbounded_channel();
        let prompt = vec![b'a'; 2 * TILE_ROWS - 2];
        let request = Request { prompt, max_tokens: 2, temperature: 0.0, seed: 0, ignores_end: true, tokens };
        let mut it =
            Running { request, sequence: 3, position: 0, made: 0, last: END, is_prompt: true, row: None };
        let mut rows = Vec::new();
        for step in 0..4 {
            let mut plan = Plan::default();
            it.is_prompt = it.position <= it.request.prompt.len();
            it.plan(&mut plan);
            plan.divide(1);
            rows.push(plan.rows().len());
            let next: Vec<u8> = (0..plan.rows().len()).map(|_| b'0' + step).collect();
            if !it.take(&next) {
                break;
            }
        }
        assert_eq!(rows, [TILE_ROWS, TILE_ROWS - 1, 1]);
        for expected in [Made::Token(b'1'), Made::Token(b'2'), Made::End { is_length: true }] {
            assert_eq!(made.try_recv(), Ok(expected));
        }
        assert_eq!((it.position, it.last), (2 * TILE_ROWS, b'2'));
    }

    #[test]
    fn who_has_gone_leaves_the_batch() {
        let (tokens, made) = unbounded_channel();
        let request =
            Request { prompt: vec![], max_tokens: 9, temperature: 0.0, seed: 0, ignores_end: false, tokens };
        let mut it =
            Running { request, sequence: 0, position: 0, made: 0, last: END, is_prompt: true, row: None };
        it.plan(&mut Plan::default());
        assert!(it.take(b"a"));
        drop(made);
        assert!(!it.take(b"b"));
    }
}
