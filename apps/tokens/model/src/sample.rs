//! The choice of the next token: three phases, and a barrier between. A lane has a block of eight
//! tokens of a row in the first two, and in the last one a row.
#![allow(unsafe_code)]

use crate::cache::{BLOCK, BLOCKS, Cache, Numbers, Rows};
use crate::math::{exp, random};
use crate::memory::{Lane, load_four, store, store_four};
use crate::product::Product;
use crate::{Sampling, Step};

/// Calls `each` with the rows and blocks of a lane.
#[inline(always)]
fn each_block(lane: Lane, rows: Rows, mut each: impl FnMut(usize, usize)) {
    const COUNT: u32 = BLOCKS as u32;
    let mut item = lane.rank;
    while item < rows.count * COUNT {
        each((item / COUNT) as usize, (item % COUNT) as usize);
        item += lane.size;
    }
}

/// # Safety
/// `from` is readable for eight numbers, which nobody writes meanwhile, and aligned to 16 bytes.
#[inline(always)]
unsafe fn load_eight(from: *const f32) -> [f32; 8] {
    // SAFETY: the caller's contract.
    let ([a, b, c, d], [e, f, g, h]) = unsafe { (load_four(from), load_four(from.wrapping_add(4))) };
    [a, b, c, d, e, f, g, h]
}

/// Stores the logits, which are the outputs of the product, and the highest of each block.
///
/// # Safety
/// As `Product::finish`.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn rate(lane: Lane, rows: Rows, product: &Product) {
    each_block(lane, rows, |row, block| {
        // SAFETY: the caller's contract.
        let four = |column| unsafe { product.four(rows, row, column) };
        let (first, second) = (four(block * BLOCK), four(block * BLOCK + 4));
        let to = rows.of(row, Numbers::Logits).wrapping_add(block * BLOCK);
        // SAFETY: numbers of the row, and this lane's alone.
        unsafe {
            store_four(to, first);
            store_four(to.wrapping_add(4), second);
        }
        let highest = highest(highest(first[0], &first[1..]), &second);
        // SAFETY: as above.
        unsafe { store(rows.of(row, Numbers::Highest).wrapping_add(block), highest) };
    });
}

/// The highest of some logits and others.
#[inline(always)]
fn highest(mut most: f32, logits: &[f32]) -> f32 {
    let mut i = 0;
    while i < logits.len() {
        most = if logits[i] > most { logits[i] } else { most };
        i += 1;
    }
    most
}

/// Adds up the powers of the logits of each block, of rows whose token is drawn.
///
/// # Safety
/// The rows are rows of the cache with their logits, which nobody writes meanwhile.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn weigh(lane: Lane, cache: &Cache, rows: Rows) {
    each_block(lane, rows, |row, block| {
        let sampling = cache.get(row).sampling;
        if !is_drawn(sampling) {
            return;
        }
        // SAFETY: numbers of the row, which nobody writes meanwhile.
        let (most, logits) = unsafe {
            let logits = rows.of(row, Numbers::Logits).wrapping_add(block * BLOCK);
            (most(rows.of(row, Numbers::Highest)).0, load_eight(logits))
        };
        let power = sum(powers(logits, most, 1.0 / sampling.temperature));
        // SAFETY: a number of the row, and this lane's alone.
        unsafe { store(rows.of(row, Numbers::Powers).wrapping_add(block), power) };
    });
}

/// The highest logit of all blocks, and the first block that has it.
///
/// # Safety
/// `blocks` are the highest of each, which nobody writes meanwhile.
#[inline(always)]
unsafe fn most(blocks: *const f32) -> (f32, usize) {
    let (mut most, mut first, mut block) = (f32::NEG_INFINITY, 0, 0);
    while block < BLOCKS {
        // SAFETY: the caller's contract.
        let (eight, mut i) = (unsafe { load_eight(blocks.wrapping_add(block)) }, 0);
        while i < 8 {
            (most, first) = if eight[i] > most { (eight[i], block + i) } else { (most, first) };
            i += 1;
        }
        block += 8;
    }
    (most, first)
}

/// Returns whether a token is drawn: else the most likely one is taken.
#[inline(always)]
fn is_drawn(sampling: Sampling) -> bool {
    // Not if the temperature is no number.
    sampling.temperature >= Sampling::MIN_TEMPERATURE
}

#[inline(always)]
fn powers(logits: [f32; BLOCK], most: f32, scale: f32) -> [f32; BLOCK] {
    logits.map(|logit| exp((logit - most) * scale))
}

#[inline(always)]
fn sum([a, b, c, d, e, f, g, h]: [f32; BLOCK]) -> f32 {
    ((a + b) + (c + d)) + ((e + f) + (g + h))
}

/// Chooses each row's next token: the lane's share, without a barrier.
///
/// # Safety
/// As [`weigh`], after it and a barrier.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
#[cfg_attr(not(target_arch = "nvptx64"), inline(never))]
pub(crate) unsafe fn choose(lane: Lane, cache: &Cache, rows: Rows) {
    let mut row = lane.rank;
    while row < rows.count {
        let Step { position, sampling, .. } = cache.get(row as usize);
        let of = |part| rows.of(row as usize, part);
        // SAFETY: the caller's contract.
        let token = unsafe {
            let most = most(of(Numbers::Highest));
            token_of(most, of(Numbers::Logits), of(Numbers::Powers), sampling, position)
        };
        cache.set_next(row as usize, token);
        row += lane.size;
    }
}

/// Chooses a token: of a block that is drawn, or the most likely one.
///
/// # Safety
/// There are the logits, and, if a token is drawn, what the powers of each block add up to. Nobody
/// writes them meanwhile.
#[inline(always)]
unsafe fn token_of(
    (most, first): (f32, usize),
    logits: *const f32,
    powers_of: *const f32,
    sampling: Sampling,
    position: u32,
) -> u8 {
    // SAFETY: the caller's contract.
    let block_of = |block: usize| unsafe { load_eight(logits.wrapping_add(block * BLOCK)) };
    // SAFETY: the caller's contract.
    let powers_of = |block: usize| unsafe { load_eight(powers_of.wrapping_add(block)) };
    if is_drawn(sampling) {
        let (mut total, mut block) = (0.0, 0);
        while block < BLOCKS {
            let (eight, mut i) = (powers_of(block), 0);
            while i < 8 {
                total += eight[i];
                i += 1;
            }
            block += 8;
        }
        let limit = random(sampling.seed, position) * total;
        // The block in which the limit lies, and how far; none, if it was rounded up to the total.
        let (mut sum, mut block, mut found, mut left) = (0.0, 0, BLOCKS, 0.0);
        while block < BLOCKS {
            let (eight, mut i) = (powers_of(block), 0);
            while i < 8 {
                let next = sum + eight[i];
                if next > limit && found == BLOCKS {
                    (found, left) = (block + i, limit - sum);
                }
                sum = next;
                i += 1;
            }
            block += 8;
        }
        if found < BLOCKS {
            let powers = powers(block_of(found), most, 1.0 / sampling.temperature);
            let (mut ahead, mut part, mut i) = (0, 0.0, 0);
            while i < BLOCK - 1 {
                part += powers[i];
                ahead += u8::from(part <= left);
                i += 1;
            }
            return (found * BLOCK) as u8 + ahead;
        }
    }
    let (logits, mut at, mut i) = (block_of(first), BLOCK - 1, BLOCK - 1);
    while i > 0 {
        i -= 1;
        at = if logits[i] == most { i } else { at };
    }
    (first * BLOCK + at) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::VOCABULARY;

    fn choose(logits: &[f32; VOCABULARY], temperature: f32, seed: u64) -> u8 {
        let mut numbers = [Aligned([0.0; VOCABULARY]), Aligned([0.0; VOCABULARY]), Aligned(*logits)];
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for (block, logits) in logits.as_chunks().0.iter().enumerate() {
            numbers[0].0[block] = highest(logits[0], logits);
            numbers[1].0[block] = sum(powers(*logits, most, 1.0 / temperature));
        }
        let [highest, powers, logits] = numbers.each_ref().map(|numbers| numbers.0.as_ptr());
        // SAFETY: a row's numbers, as they are computed above.
        unsafe {
            let found = super::most(highest);
            assert_eq!(found.0, most);
            token_of(found, logits, powers, Sampling { temperature, seed }, 7)
        }
    }

    #[repr(align(16))]
    struct Aligned([f32; VOCABULARY]);

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
