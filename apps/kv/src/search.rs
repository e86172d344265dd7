//! The demonstration's exact search. It loads vectors, times and checks searches, and compares them
//! with the same search by all cores of the machine.

use crate::client::{Answer, Client, ClientError};
use gpunet_device::team::F16;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Instant;

/// The number of nearest vectors that a search returns.
const COUNT: usize = 10;
/// The number of timed searches.
const SEARCHES: usize = 50;
/// Additions in flight on each connection, and the number of connections.
const PIPELINE: usize = 64;
const LOADERS: usize = 4;

/// Figures of the searches.
#[derive(Debug, Serialize)]
pub struct Report {
    pub vectors: usize,
    pub dim: usize,
    pub added_per_second: u64,
    pub vsim_p50_us: f64,
    pub vsim_slowest_us: f64,
    pub cores: usize,
    pub cores_p50_us: f64,
    /// The cores' time divided by the server's.
    pub ratio: f64,
}

/// A vector without a pattern: as half-precision numbers, and scaled to length 1 and rounded to
/// half precision again.
fn vector(number: usize, dim: usize) -> (Vec<u8>, Vec<f32>) {
    let mut state = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let given: Vec<F16> = (0..dim)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            F16::from_f32((state >> 40) as f32 / (1u32 << 23) as f32 - 1.0)
        })
        .collect();
    let bytes = given.iter().flat_map(|half| half.0.to_le_bytes()).collect();
    (bytes, unit(&given.iter().map(|half| half.to_f32()).collect::<Vec<_>>()))
}

/// A vector of length 1, computed as the kernel computes it.
fn unit(numbers: &[f32]) -> Vec<f32> {
    let mut sums = [0.0; 8];
    for (at, &number) in numbers.iter().enumerate() {
        sums[at % 8] += f64::from(number) * f64::from(number);
    }
    let square: f64 =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    numbers.iter().map(|&number| (f64::from(number) / square.sqrt()) as f32).collect()
}

/// The dot product, computed as the kernel does, with eight sums.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (eights_a, rest_a) = a.as_chunks::<8>();
    let (eights_b, rest_b) = b.as_chunks::<8>();
    for (a, b) in eights_a.iter().zip(eights_b) {
        for at in 0..8 {
            sums[at] += a[at] * b[at];
        }
    }
    for (at, (a, b)) in rest_a.iter().zip(rest_b).enumerate() {
        sums[at] += a * b;
    }
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

/// Loads, searches, and compares.
pub fn run(addr: SocketAddr, vectors: usize, dim: usize) -> Result<Report, ClientError> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        let loaders: Vec<_> =
            (0..LOADERS).map(|first| scope.spawn(move || load(addr, first, vectors, dim))).collect();
        loaders
            .into_iter()
            .try_for_each(|loader| loader.join().unwrap_or_else(|_| unreachable!("the loaders do not panic")))
    })?;
    let added_per_second = (vectors as f64 / started.elapsed().as_secs_f64()) as u64;
    let mut client = Client::connect(addr)?;
    client.expect(&[b"VCARD", b"demo:vectors"], &Answer::Integer(vectors as i64))?;
    client.expect(&[b"VDIM", b"demo:vectors"], &Answer::Integer(dim as i64))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // The vectors that the server keeps, as numbers that need no unpacking.
    let mut all = vec![0.0f32; vectors * dim];
    let part = vectors.div_ceil(cores) * dim;
    std::thread::scope(|scope| {
        for (thread, part) in all.chunks_mut(part).enumerate() {
            let first = thread * vectors.div_ceil(cores);
            scope.spawn(move || {
                for (at, kept) in part.chunks_mut(dim).enumerate() {
                    let (_, unit) = vector(first + at, dim);
                    for (kept, number) in kept.iter_mut().zip(unit) {
                        *kept = F16::from_f32(number).to_f32();
                    }
                }
            });
        }
    });
    let (mut times, mut cpu_times) = (Vec::new(), Vec::new());
    for number in 0..SEARCHES {
        let (bytes, query) = vector(vectors + number, dim);
        let started = Instant::now();
        let command: [&[u8]; 5] = [b"VSIM", b"demo:vectors", b"FP16", &bytes, b"WITHSCORES"];
        client.queue(&command);
        client.flush()?;
        let answer = client.answer()?;
        times.push(started.elapsed().as_nanos() as u64);
        let started = Instant::now();
        let expected = by_cores(&all, &query, dim, cores);
        cpu_times.push(started.elapsed().as_nanos() as u64);
        let expected = Answer::Array(
            expected
                .iter()
                .flat_map(|&(dot, number)| {
                    let score = (0.5 + 0.5 * dot).clamp(0.0, 1.0);
                    let digits = gpunet_kv_vectors::Decimal::of(f64::from(score));
                    let digits: Vec<u8> =
                        (0..digits.bytes().len()).map(|at| digits.bytes().get(at)).collect();
                    [Answer::bulk(format!("v{number}")), Answer::bulk(digits)]
                })
                .collect(),
        );
        if answer != expected {
            return Err(ClientError::Wrong {
                command: format!("VSIM number {number}"),
                found: Box::new(answer),
                expected: Box::new(expected),
            });
        }
    }
    client.expect(&[b"DEL", b"demo:vectors"], &Answer::Integer(1))?;
    times.sort_unstable();
    cpu_times.sort_unstable();
    let us = |ns: u64| ns as f64 / 1000.0;
    let (p50, cores_p50) = (us(times[SEARCHES / 2]), us(cpu_times[SEARCHES / 2]));
    Ok(Report {
        vectors,
        dim,
        added_per_second,
        vsim_p50_us: p50,
        vsim_slowest_us: us(times[SEARCHES - 1]),
        cores,
        cores_p50_us: cores_p50,
        ratio: cores_p50 / p50,
    })
}

/// Adds every fourth vector.
fn load(addr: SocketAddr, first: usize, vectors: usize, dim: usize) -> Result<(), ClientError> {
    let mut client = Client::connect(addr)?;
    let mine: Vec<_> = (first..vectors).step_by(LOADERS).collect();
    for batch in mine.chunks(PIPELINE) {
        for &number in batch {
            let name = format!("v{number}");
            client.queue(&[b"VADD", b"demo:vectors", b"FP16", &vector(number, dim).0, name.as_bytes()]);
        }
        client.flush()?;
        for _ in batch {
            client.check(&[b"VADD"], &Answer::Integer(1))?;
        }
    }
    Ok(())
}

/// Finds the nearest vectors with all cores of this machine, each of which searches a part.
fn by_cores(all: &[f32], query: &[f32], dim: usize, cores: usize) -> Vec<(f32, usize)> {
    let part = (all.len() / dim).div_ceil(cores);
    let mut found: Vec<(f32, usize)> = std::thread::scope(|scope| {
        let search = |(thread, vectors): (usize, &[f32])| {
            let mut best: Vec<(f32, usize)> = Vec::with_capacity(COUNT + 1);
            for (at, vector) in vectors.chunks(dim).enumerate() {
                let dot = dot(vector, query);
                if best.len() < COUNT || best.last().is_some_and(|last| dot > last.0) {
                    let place = best.partition_point(|other| other.0 >= dot);
                    best.insert(place, (dot, thread * part + at));
                    best.truncate(COUNT);
                }
            }
            best
        };
        let threads: Vec<_> =
            all.chunks(part * dim).enumerate().map(|part| scope.spawn(move || search(part))).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap_or_else(|_| unreachable!("a search does not panic")))
            .collect()
    });
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    found.truncate(COUNT);
    found
}
