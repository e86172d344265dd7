//! The choice of the next token.
#![allow(unsafe_code)]

use crate::cache::{Cache, Numbers};
use crate::config::VOCABULARY;
use crate::math::{exp, random};
use crate::memory::{Lane, load};
use crate::{Sampling, Step};

/// Chooses each row's next token: the lane's share, without a barrier.
///
/// # Safety
/// The cache has the rows, with their logits, which nobody writes meanwhile.
#[inline(never)]
pub(crate) unsafe fn choose(lane: Lane, cache: &Cache, rows: u32) {
    let mut row = lane.rank;
    while row < rows {
        let logits = cache.numbers(Numbers::Logits).wrapping_add(row as usize * Cache::ROW_STRIDE);
        // SAFETY: the caller's contract.
        let logit = |token: usize| unsafe { load(logits.wrapping_add(token)) };
        let Step { position, sampling, .. } = cache.get(row as usize);
        cache.set_next(row as usize, token_of(logit, sampling, position));
        row += lane.size;
    }
}

#[inline(always)]
fn token_of(logit: impl Fn(usize) -> f32, sampling: Sampling, position: u32) -> u8 {
    let (mut best, mut most, mut token) = (0, logit(0), 1);
    while token < VOCABULARY {
        let number = logit(token);
        if number > most {
            (best, most) = (token, number);
        }
        token += 1;
    }
    if sampling.temperature.is_nan() || sampling.temperature < Sampling::MIN_TEMPERATURE {
        return best as u8;
    }
    let scale = 1.0 / sampling.temperature;
    let power = |token| exp((logit(token) - most) * scale);
    let (mut total, mut token) = (0.0, 0);
    while token < VOCABULARY {
        total += power(token);
        token += 1;
    }
    let limit = random(sampling.seed, position) * total;
    let (mut sum, mut token) = (0.0, 0);
    while token < VOCABULARY {
        sum += power(token);
        if sum > limit {
            return token as u8;
        }
        token += 1;
    }
    // The limit was rounded up to the total.
    best as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(logits: &[f32; VOCABULARY], temperature: f32, seed: u64) -> u8 {
        token_of(|token| logits[token], Sampling { temperature, seed }, 7)
    }

    #[test]
    fn the_most_likely_token_is_chosen_without_a_temperature() {
        let mut logits = [-1.0; VOCABULARY];
        (logits[40], logits[41]) = (2.0, 2.0);
        for temperature in [0.0, -1.0, f32::NAN, Sampling::MIN_TEMPERATURE / 2.0] {
            assert_eq!(choose(&logits, temperature, 3), 40, "{temperature}");
        }
        assert_eq!(choose(&[0.0; VOCABULARY], 0.0, 0), 0);
    }

    #[test]
    fn tokens_are_drawn_by_their_shares() {
        let mut logits = [f32::NEG_INFINITY; VOCABULARY];
        (logits[3], logits[200]) = (0.0, 1.0);
        for (temperature, share) in [(1.0, 0.7311), (0.5, 0.8808), (f32::INFINITY, 0.5)] {
            if temperature == f32::INFINITY {
                // Zero times an infinite difference is no number; real logits are finite.
                logits = [0.0; VOCABULARY];
            }
            let drawn: Vec<u8> = (0..4000).map(|seed| choose(&logits, temperature, seed)).collect();
            let high = drawn.iter().filter(|&&token| token >= 128).count() as f64 / 4000.0;
            // Five times the standard deviation of 4000 draws is at most 0.04.
            assert!((high - share).abs() < 0.04, "{temperature}: {high} instead of {share}");
        }
    }
}
