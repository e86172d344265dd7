#![allow(unsafe_code)]

use super::*;
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::team::F16;
use gpunet_device::{Buffer, Group, Net};
use gpunet_serve::{Bytes, Context, Heap};
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

// SAFETY: 0 is no attachment: calls that would look at it do not.
const CONTEXT: Context = Context { net: unsafe { Net::from_raw(0) }, now: 0 };

/// Zeroed memory.
pub(crate) fn for_test(len: usize) -> Memory {
    let cells = std::vec![0u128; len.div_ceil(16) + 4].leak();
    let ptr = cells.as_mut_ptr().cast::<u8>();
    // SAFETY: leaked, so it lives for ever; each test has its own.
    unsafe { Memory::new(Buffer::from_raw_parts(ptr.wrapping_add(ptr.align_offset(64)), len)) }
}

fn server(heap: usize, blocks: usize) -> (Heap, Map, Vectors) {
    let make = |carve: &mut Carve| {
        let heap = Heap::new(carve, heap);
        let map = Map::new(carve, heap, 16);
        (heap, map, Vectors::new(carve, map))
    };
    let mut measure = Carve::measure_for(blocks);
    let _ = make(&mut measure);
    make(&mut Carve::new(for_test(measure.used()), blocks))
}

fn new_set<G: Group>(g: &G, map: Map, vectors: Vectors, key: &[u8], dim: usize, storage: Storage) -> Pin {
    let fresh = vectors.fresh_set(g, &CONTEXT, key.into(), dim, storage).unwrap().unwrap();
    let mut locked = map.lock(g, &CONTEXT, key.into()).unwrap();
    locked.put(fresh);
    let pin = locked.pin().unwrap();
    locked.unlock().unwrap();
    pin
}

fn vector<G: Group>(g: &G, vectors: Vectors, numbers: &[f32]) -> Result<Vector, VectorError> {
    let mut builder = vectors.build(g, &CONTEXT, numbers.len())?;
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    vectors.set_all(g, &mut builder, bytes[..].into());
    vectors.finish(g, &CONTEXT, builder)
}

fn insert<G: Group>(g: &G, vectors: Vectors, set: &Pin, name: &str, numbers: &[f32]) -> Change {
    let vector = vector(g, vectors, numbers).unwrap();
    let change = vectors.insert(g, &CONTEXT, set, &vector, name.as_bytes().into()).unwrap();
    vectors.forget(g, &CONTEXT, vector).unwrap();
    change
}

fn search<G: Group>(g: &G, vectors: Vectors, set: &Pin, numbers: &[f32], most: usize) -> Vec<(String, f32)> {
    let vector = vector(g, vectors, numbers).unwrap();
    let reading = vectors.read(g, &CONTEXT, set).unwrap();
    let found = vectors.search(g, &CONTEXT, &reading, &vector, most).unwrap();
    let text = |name: Bytes<'_>| (0..name.len()).map(|at| name.get(at) as char).collect();
    let list = (0..found.len()).map(|at| (text(reading.name(found.get(at).0)), found.get(at).1)).collect();
    drop(reading);
    vectors.forget(g, &CONTEXT, vector).unwrap();
    list
}

/// A set as a list, searched in the plainest way, in the order of additions that is documented.
struct Model {
    half: bool,
    all: Vec<(String, Vec<f32>)>,
}

fn unit(numbers: &[f32]) -> Vec<f32> {
    let mut sums = [0.0; 8];
    numbers
        .iter()
        .enumerate()
        .for_each(|(at, &number)| sums[at % 8] += f64::from(number) * f64::from(number));
    let square: f64 =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    let norm = square.sqrt();
    numbers
        .iter()
        .map(|&number| if norm > 0.0 { (f64::from(number) / norm) as f32 } else { number })
        .collect()
}

impl Model {
    fn insert(&mut self, name: &str, numbers: &[f32]) {
        let halves = |number: f32| if self.half { F16::from_f32(number).to_f32() } else { number };
        let kept = unit(numbers).into_iter().map(halves).collect();
        match self.all.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = kept,
            None => self.all.push((name.into(), kept)),
        }
    }

    fn search(&self, numbers: &[f32], most: usize) -> Vec<(String, f32)> {
        let query = unit(numbers);
        let mut list: Vec<_> = self
            .all
            .iter()
            .map(|(name, vector)| {
                let mut sums = [0.0f32; 8];
                vector.iter().zip(&query).enumerate().for_each(|(at, (a, b))| sums[at % 8] += a * b);
                let dot =
                    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
                (name.clone(), dot)
            })
            .collect();
        list.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
        list.truncate(most);
        list.into_iter().map(|(name, dot)| (name, (0.5 + 0.5 * dot).clamp(0.0, 1.0))).collect()
    }
}

/// Numbers without a pattern, from a seed.
fn numbers(seed: u64, dim: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..dim)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            ((state >> 40) as f32 / (1u32 << 23) as f32) - 1.0
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_set_is_a_list_that_is_searched_exactly(
        steps in prop::collection::vec((0u8..6, 0u64..60, any::<u32>()), 1..250),
        dim in 1usize..40,
        half: bool,
        long: bool,
    ) {
        let (g, (heap, map, vectors)) = (Solo::new(0, 1), server(16 << 20, 1));
        let storage = if half { Storage::Half } else { Storage::Single };
        let set = new_set(&g, map, vectors, b"set", dim, storage);
        let mut model = Model { half, all: Vec::new() };
        let name = |which: u64| if long { std::format!("{which:050}") } else { std::format!("v{which}") };
        for (step, which, seed) in steps {
            // Few different ones, so that some are equally near.
            let seed = seed as u64 % 40;
            match step {
                0..=2 => {
                    let is_there = model.all.iter().any(|(other, _)| *other == name(which));
                    let expected = if is_there { Change::Replaced } else { Change::Added };
                    prop_assert_eq!(insert(&g, vectors, &set, &name(which), &numbers(seed, dim)), expected);
                    model.insert(&name(which), &numbers(seed, dim));
                }
                3 => {
                    let found = model.all.iter().position(|(other, _)| *other == name(which));
                    // The last one closes the set.
                    if model.all.len() != 1 {
                        let expected = if found.is_some() { Change::Removed } else { Change::NotFound };
                        prop_assert_eq!(vectors.remove(&g, &CONTEXT, &set, name(which).as_bytes().into()), Ok(expected));
                        found.map(|at| model.all.swap_remove(at));
                    }
                }
                _ => {
                    let most = 1 + which as usize % 20;
                    prop_assert_eq!(search(&g, vectors, &set, &numbers(seed, dim), most), model.search(&numbers(seed, dim), most));
                }
            }
            prop_assert_eq!(vectors.len(&g, &set), model.all.len());
        }
        map.clear(&g, &CONTEXT).unwrap();
        prop_assert!(heap.used(&g) > 0, "it is pinned");
        map.unpin(&g, &CONTEXT, set).unwrap();
        prop_assert_eq!(heap.used(&g), 0);
    }
}

#[test]
fn all_blocks_and_lanes_find_the_same() {
    for (dim, storage, lanes) in [(20, Storage::Half, 3), (8, Storage::Single, 33), (100, Storage::Half, 1)] {
        let (_, map, vectors) = server(64 << 20, 3);
        let g = Solo::new(0, 3);
        let set = new_set(&g, map, vectors, b"set", dim, storage);
        let mut model = Model { half: storage == Storage::Half, all: Vec::new() };
        for which in 0..9000 {
            // Each vector is there twice: the first one comes first.
            let vector = numbers(which / 2 + 1, dim);
            insert(&g, vectors, &set, &std::format!("{which}"), &vector);
            model.all.push((std::format!("{which}"), Vec::new()));
            let halves = |number: f32| if model.half { F16::from_f32(number).to_f32() } else { number };
            let kept = unit(&vector).into_iter().map(halves).collect();
            model.all[which as usize].1 = kept;
        }
        let expected: Vec<_> = (0..4).map(|which| model.search(&numbers(7 * which, dim), 50)).collect();
        std::thread::scope(|scope| {
            for block in 0..3 {
                for lane in Lanes::group(block, 3, lanes) {
                    let (set, expected) = (&set, &expected);
                    scope.spawn(move || {
                        // Every block searches and helps.
                        for round in 0..6 {
                            let which = (round + block as usize) % 4;
                            let found = search(&lane, vectors, set, &numbers(7 * which as u64, dim), 50);
                            assert_eq!(found, expected[which]);
                            vectors.help(&lane, &CONTEXT).unwrap();
                        }
                    });
                }
            }
        });
        map.unpin(&g, &CONTEXT, set).unwrap();
    }
}

/// A set that changes between two parts of a search: what is found is what is there at the end.
#[test]
fn a_search_in_parts_finds_what_is_there_at_the_last_part() {
    const DIM: usize = 1024;
    let (heap, map, vectors) = server(32 << 20, 1);
    let g = Solo::new(0, 1);
    let set = new_set(&g, map, vectors, b"set", DIM, Storage::Half);
    let query = numbers(1, DIM);
    (0..600).for_each(|which| {
        let _ = insert(&g, vectors, &set, &std::format!("{which}"), &numbers(which + 2, DIM));
    });
    let used = heap.used(&g);
    let remove = |name: &str| vectors.remove(&g, &CONTEXT, &set, name.as_bytes().into()).unwrap();
    let changes: [(&str, &dyn Fn(u64)); 4] = [
        ("nothing", &|_| {}),
        // Where it was compared already, and where it was not.
        ("a vector is replaced", &|part| {
            insert(&g, vectors, &set, if part == 1 { "0" } else { "599" }, &query);
        }),
        ("a vector comes", &|part| {
            insert(&g, vectors, &set, &std::format!("more {part}"), &query);
        }),
        // The last one takes its place, which was compared already.
        ("the first goes", &|part| {
            remove(&std::format!("{}", part + 100));
        }),
    ];
    for (name, change) in changes {
        let reading = vectors.read(&g, &CONTEXT, &set).unwrap();
        assert!(vectors.is_long(&g, &reading));
        let vector = vector(&g, vectors, &query).unwrap();
        let search_in_parts = vectors.begin(&g, &CONTEXT, &reading, vector, 20).unwrap().unwrap();
        drop(reading);
        let mut parts = 0;
        let found: Vec<_> = loop {
            parts += 1;
            let reading = vectors.read(&g, &CONTEXT, &set).unwrap();
            if let Some(found) = vectors.go_on(&g, &CONTEXT, &reading, &search_in_parts).unwrap() {
                break (0..found.len()).map(|at| found.get(at).1).collect();
            }
            drop(reading);
            change(parts);
        };
        vectors.end(&g, &CONTEXT, search_in_parts).unwrap();
        let expected: Vec<_> =
            search(&g, vectors, &set, &query, 20).into_iter().map(|(_, score)| score).collect();
        assert_eq!(found, expected, "{name}");
        assert!((4..=10).contains(&parts), "{name}: {parts} parts");
    }
    assert!(heap.used(&g) <= used + (64 << 10), "{} {used}", heap.used(&g));
    map.unpin(&g, &CONTEXT, set).unwrap();
}

#[test]
fn sets_change_while_they_are_searched() {
    let (_, map, vectors) = server(64 << 20, 3);
    let g = Solo::new(0, 3);
    let set = new_set(&g, map, vectors, b"set", 16, Storage::Half);
    // These stay; others come and go.
    for which in 0..3000 {
        insert(&g, vectors, &set, &std::format!("stays {which}"), &numbers(which + 1, 16));
    }
    let mut lanes: Vec<_> = (0..3).flat_map(|block| Lanes::group(block, 3, 3)).collect();
    std::thread::scope(|scope| {
        for lane in lanes.drain(..) {
            let set = &set;
            scope.spawn(move || match lane.index() {
                0 => {
                    for round in 0..600 {
                        let name = std::format!("goes {}", round % 7);
                        let change = insert(&lane, vectors, set, &name, &numbers(100_000 + round, 16));
                        assert!(matches!(change, Change::Added | Change::Replaced));
                        if round % 3 == 0 {
                            assert_eq!(
                                vectors.remove(&lane, &CONTEXT, set, name.as_bytes().into()),
                                Ok(Change::Removed)
                            );
                        }
                    }
                }
                _ => {
                    for round in 0..60 {
                        let wanted = std::format!("stays {round}");
                        let found = search(&lane, vectors, set, &numbers(round + 1, 16), 10);
                        assert_eq!((found.len(), &found[0].0), (10, &wanted));
                        assert!(found[0].1 > 0.999 && found.is_sorted_by(|a, b| a.1 >= b.1));
                    }
                }
            });
        }
    });
    map.unpin(&g, &CONTEXT, set).unwrap();
}

#[test]
fn memory_comes_back_and_its_end_is_said() {
    let (heap, map, vectors) = server(8 << 20, 1);
    let g = Solo::new(0, 1);
    let set = new_set(&g, map, vectors, b"set", 256, Storage::Single);
    let mut count = 0;
    loop {
        match insert_or_full(&g, vectors, &set, count) {
            Some(Change::Added) => count += 1,
            Some(Change::NoMemory) | None => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(count > 2000, "{count} of 1 KiB in 8 MiB");
    assert_eq!(vectors.len(&g, &set), count as usize);
    // What was full is whole.
    assert_eq!(insert(&g, vectors, &set, "3", &numbers(1, 256)), Change::Replaced);
    for which in 0..count {
        let name = std::format!("{which}");
        let expected = if which + 1 == count { Change::Emptied } else { Change::Removed };
        assert_eq!(vectors.remove(&g, &CONTEXT, &set, name.as_bytes().into()), Ok(expected));
    }
    assert_eq!(insert_or_full(&g, vectors, &set, 0), Some(Change::Closed));
    map.clear(&g, &CONTEXT).unwrap();
    map.unpin(&g, &CONTEXT, set).unwrap();
    assert_eq!(heap.used(&g), 0);
}

fn insert_or_full(g: &Solo, vectors: Vectors, set: &Pin, which: u64) -> Option<Change> {
    let vector = vector(g, vectors, &numbers(which + 1, 256)).ok()?;
    let change =
        vectors.insert(g, &CONTEXT, set, &vector, std::format!("{which}").as_bytes().into()).unwrap();
    vectors.forget(g, &CONTEXT, vector).unwrap();
    Some(change)
}

#[test]
fn what_is_no_vector_is_refused() {
    let (heap, _, vectors) = server(4 << 20, 1);
    let g = Solo::new(0, 1);
    for bad in [&[][..], &[1.0, f32::NAN], &[f32::INFINITY], &[0.0; MAX_DIM + 1]] {
        assert!(matches!(vector(&g, vectors, bad), Err(VectorError::Invalid)));
    }
    let mut builder = vectors.build(&g, &CONTEXT, 2).unwrap();
    vectors.set(&g, &mut builder, 0, b"1".into());
    vectors.set(&g, &mut builder, 1, b"x".into());
    assert!(matches!(vectors.finish(&g, &CONTEXT, builder), Err(VectorError::Invalid)));
    assert_eq!(heap.used(&g), 0);
}
