//! The check of the model: its texts beside those that numpy computes.

use crate::plan::{Plan, Row};
use crate::step::Model;
use safetensors::SafeTensors;
use std::error::Error;

/// What numpy computes from the same weights.
const REFERENCE: &[u8] = include_bytes!("../../../apps/tokens/model/reference.safetensors");
/// Two logits that are nearer to each other than this may change places.
const NEAR: f32 = 0.01;

/// Continues the prompts of the reference together, greedily. Returns how many tokens were
/// compared.
pub fn check(model: &mut Model) -> Result<usize, Box<dyn Error>> {
    let file = SafeTensors::deserialize(REFERENCE)?;
    let bytes =
        |number: usize, part: &str| file.tensor(&format!("{number}.{part}")).map(|it| it.data().to_vec());
    let mut compared = 0;
    for number in 0.. {
        // The last of the reference has no continuation.
        let Ok(expected) = bytes(number, "greedy") else { break };
        let (tokens, gaps) = (bytes(number, "tokens")?, bytes(number, "gaps")?);
        let row = |position: usize, token: u8| Row {
            sequence: 0,
            position: position as u32,
            token: token.into(),
            ..Row::default()
        };
        let mut plan = Plan::default();
        let mut at = plan.prompt(tokens.iter().enumerate().map(|(at, token)| row(at, *token)));
        for (step, (token, gap)) in expected.iter().zip(gaps.chunks_exact(4)).enumerate() {
            let made = model.step(&plan)?[at];
            if f32::from_le_bytes(gap.try_into()?) < NEAR {
                break;
            }
            if made != *token {
                return Err(format!("text {number}, token {step}: {made} instead of {token}").into());
            }
            compared += 1;
            plan.clear();
            at = plan.single(row(tokens.len() + step, made));
            plan.divide(model.blocks);
        }
    }
    Ok(compared)
}
