//! The choice of the next token.
#![allow(unsafe_code)]

use crate::cache::{Cache, Numbers};
use crate::config::VOCABULARY;
use crate::math::{exp, random};
use crate::memory::{Lane, load_four};
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
        // SAFETY: the caller's contract; a row's logits are aligned.
        let four = |token: usize| unsafe { load_four(logits.wrapping_add(token)) };
        let Step { position, sampling, .. } = cache.get(row as usize);
        cache.set_next(row as usize, token_of(four, sampling, position));
        row += lane.size;
    }
}

/// Chooses a token. `four` loads the logits of four tokens, from a multiple of 4 on: a load has a
/// long latency, so several are under way.
#[inline(always)]
fn token_of(four: impl Fn(usize) -> [f32; 4], sampling: Sampling, position: u32) -> u8 {
    let (mut best, mut most, mut token) = (0, four(0)[0], 0);
    while token < VOCABULARY {
        let (first, second) = (four(token), four(token + 4));
        let mut i = 0;
        while i < 8 {
            let logit = if i < 4 { first[i] } else { second[i - 4] };
            if logit > most {
                (best, most) = (token + i, logit);
            }
            i += 1;
        }
        token += 8;
    }
    if sampling.temperature.is_nan() || sampling.temperature < Sampling::MIN_TEMPERATURE {
        return best as u8;
    }
    let scale = 1.0 / sampling.temperature;
    let powers = |token| {
        let [a, b, c, d] = four(token);
        let power = |logit: f32| exp((logit - most) * scale);
        [power(a), power(b), power(c), power(d)]
    };
    let (mut total, mut token) = (0.0, 0);
    while token < VOCABULARY {
        let [a, b, c, d] = powers(token);
        total += (a + b) + (c + d);
        token += 4;
    }
    let limit = random(sampling.seed, position) * total;
    let (mut sum, mut token) = (0.0, 0);
    while token < VOCABULARY {
        let [a, b, c, d] = powers(token);
        let next = sum + ((a + b) + (c + d));
        if next > limit {
            let left = limit - sum;
            let ahead = u8::from(a <= left) + u8::from(a + b <= left) + u8::from((a + b) + c <= left);
            return token as u8 + ahead;
        }
        sum = next;
        token += 4;
    }
    // The limit was rounded up to the total.
    best as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(logits: &[f32; VOCABULARY], temperature: f32, seed: u64) -> u8 {
        let four = |token| [logits[token], logits[token + 1], logits[token + 2], logits[token + 3]];
        token_of(four, Sampling { temperature, seed }, 7)
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
        let mut logits = [0.0; VOCABULARY];
        for (token, logit) in logits.iter_mut().enumerate() {
            *logit = (token * token % 97) as f32 / 20.0 - 2.0;
        }
        for temperature in [0.25, 1.0, 2.0, f32::MAX] {
            let powers = logits.map(|logit| (f64::from(logit) / f64::from(temperature)).exp());
            let total: f64 = powers.iter().sum();
            let mut compared = 0;
            for seed in 0..2000 {
                let place = f64::from(random(seed, 7)) * total;
                let (mut sum, mut expected) = (powers[0], 0);
                while sum <= place {
                    expected += 1;
                    sum += powers[expected];
                }
                let edge = (sum - place).min(place - (sum - powers[expected]));
                // Sums of 32 bits are not exact.
                if edge > total * 1e-5 {
                    let drawn = choose(&logits, temperature, seed);
                    assert_eq!(usize::from(drawn), expected, "temperature {temperature}, seed {seed}");
                    compared += 1;
                }
            }
            assert!(compared > 1900, "only {compared} draws are sure");
        }
    }

    #[test]
    fn what_has_no_share_is_not_drawn() {
        let mut logits = [-300.0; VOCABULARY];
        (logits[3], logits[254]) = (0.0, 0.5);
        for seed in 0..2000 {
            assert!(matches!(choose(&logits, 1.0, seed), 3 | 254), "seed {seed}");
        }
    }
}
