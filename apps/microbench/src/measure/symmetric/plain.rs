//! The same by threads of a plain program: `std::sync::Barrier`, and memory that they share.

use crate::outcome::Outcome;
use crate::report::{Role, Row};
use std::sync::{Barrier, Mutex, PoisonError, RwLock};
use std::time::Instant;

/// Measures barriers of `members` threads.
pub(super) fn barrier(members: u32, rounds: u64) -> Outcome<Row> {
    let barrier = Barrier::new(members as usize);
    let samples = timed(members, rounds, |_| {
        barrier.wait();
    })?;
    Ok(Row::times(Role::Reference, format!("{members} threads, std::sync::Barrier"), &samples))
}

/// Measures threads that each copy their source to their place in the memory of all, between two
/// barriers.
pub(super) fn all_gather(members: u32, elements: usize, rounds: u64) -> Outcome<Row> {
    let barrier = Barrier::new(members as usize);
    let count = members as usize;
    let place = |_| Mutex::new(vec![0f32; elements]);
    // No two threads use the same place at the same time: the locks are there for the compiler.
    let places: Vec<_> = (0..count * count).map(place).collect();
    let sources: Vec<_> = (0..count).map(|member| vec![member as f32; elements]).collect();
    let samples = timed(members, rounds, |member| {
        barrier.wait();
        for to in 0..count {
            let place = &places[to * count + member];
            place.lock().unwrap_or_else(PoisonError::into_inner).copy_from_slice(&sources[member]);
        }
        barrier.wait();
    })?;
    Ok(Row::times(Role::Reference, "threads, memcpy between two barriers", &samples))
}

/// Measures threads that each add up the sources of all, between two barriers.
pub(super) fn reduce(members: u32, elements: usize, rounds: u64) -> Outcome<Row> {
    let barrier = Barrier::new(members as usize);
    let sources: Vec<_> = (0..members).map(|member| RwLock::new(vec![member as f32; elements])).collect();
    let sums: Vec<_> = (0..members).map(|_| Mutex::new(vec![0f32; elements])).collect();
    let samples = timed(members, rounds, |member| {
        barrier.wait();
        let mut sum = sums[member].lock().unwrap_or_else(PoisonError::into_inner);
        sum.fill(0.0);
        for source in &sources {
            let source = source.read().unwrap_or_else(PoisonError::into_inner);
            sum.iter_mut().zip(source.iter()).for_each(|(sum, element)| *sum += element);
        }
        drop(sum);
        barrier.wait();
    })?;
    Ok(Row::times(Role::Reference, "threads, each adds up all, between two barriers", &samples))
}

/// Runs `call` in `members` threads, again and again. Returns the nanoseconds of each call at the
/// first thread.
fn timed(members: u32, rounds: u64, call: impl Fn(usize) + Sync) -> Outcome<Vec<u64>> {
    let call = &call;
    let play = move |member: usize| -> Vec<u64> {
        (0..rounds)
            .map(|_| {
                let start = Instant::now();
                call(member);
                start.elapsed().as_nanos() as u64
            })
            .collect()
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..members as usize).map(|member| scope.spawn(move || play(member))).collect();
        let samples = play(0);
        others.into_iter().try_for_each(|other| other.join().map(drop).map_err(|_| "a thread panicked"))?;
        Ok(samples)
    })
}
