//! Continues a text with the model, in one CPU block of one thread:
//!
//! `cargo run --release -p gpunet-tokens-model --example continue -- "User: What is a ring?"`
//!
//! With a number behind it, so many sequences continue the text in one batch: the first one by the
//! most likely tokens, the others by what is drawn. What a second gives is printed at the end.

use gpunet_device::group::Solo;
use gpunet_tokens_model::{
    ASSISTANT, CONTEXT, Cache, END, Model, Sampling, SequenceId, Step, USER, WEIGHTS, Weights,
};
use std::error::Error;
use std::time::Instant;

/// Memory aligned as a cache is.
#[derive(Clone, Copy)]
#[repr(align(64))]
#[expect(dead_code, reason = "the model reads it by its address")]
struct Line([u8; 64]);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut text = vec![END];
    text.extend(arguments.next().unwrap_or_else(|| "Once upon a time".into()).bytes());
    if text[1..].starts_with(USER) && !text.windows(ASSISTANT.len()).any(|part| part == ASSISTANT) {
        text.push(b'\n');
        text.extend(ASSISTANT);
    }
    let sequences = arguments.next().map_or(Ok(1), |number| number.parse::<usize>())?.max(1);
    if text.len() > CONTEXT / 2 {
        return Err(format!("the text has more than {} bytes", CONTEXT / 2).into());
    }

    let rows = sequences.max(text.len());
    let mut memory = vec![Line([0; 64]); Cache::bytes(sequences, rows).div_ceil(64)];
    // SAFETY: zeros, aligned, as many as needed; they live as long as the model.
    let cache = unsafe { Cache::new(memory.as_mut_ptr().cast(), sequences, rows) };
    // SAFETY: the bytes that are checked, which live for ever.
    let model = unsafe { Model::new(Weights::check(WEIGHTS)?, WEIGHTS.as_ptr(), cache) };

    let g = Solo::new(0, 1);
    let step = |sequence: usize, position: usize, token| {
        let temperature = if sequence == 0 { 0.0 } else { 0.7 };
        let (sequence, seed) = (SequenceId(sequence as u32), sequence as u64);
        Step { sequence, token, position: position as u32, sampling: Sampling { temperature, seed } }
    };
    let start = Instant::now();
    let mut texts = vec![Vec::new(); sequences];
    for (sequence, following) in texts.iter_mut().enumerate() {
        text.iter().enumerate().for_each(|(at, &token)| model.put(at, step(sequence, at, token)));
        model.step(&g, text.len())?;
        following.push(model.next(text.len() - 1));
    }
    let read = start.elapsed();
    let start = Instant::now();
    let mut steps = 0;
    for position in text.len()..CONTEXT.min(text.len() + 200) {
        for (sequence, following) in texts.iter().enumerate() {
            model.put(sequence, step(sequence, position, following[following.len() - 1]));
        }
        model.step(&g, sequences)?;
        for (sequence, following) in texts.iter_mut().enumerate() {
            following.push(model.next(sequence));
        }
        steps += 1;
    }
    let written = start.elapsed();
    for following in &texts {
        let end = following.iter().position(|&token| token == END).unwrap_or(following.len());
        println!("{}", String::from_utf8_lossy(&following[..end]).trim_end());
    }
    println!(
        "{:.0} tokens of prompts a second; {:.2} ms a step, {:.0} tokens a second",
        (sequences * text.len()) as f64 / read.as_secs_f64(),
        written.as_secs_f64() * 1e3 / f64::from(steps),
        sequences as f64 * f64::from(steps) / written.as_secs_f64()
    );
    Ok(())
}
