use super::*;
use crate::memory::{for_test, no_net};
use gpunet_device::group::Solo;
use proptest::prelude::*;
use std::collections::HashMap;
use std::vec::Vec;

const G: Solo = Solo::new(0, 1);

fn map(bytes: usize, buckets: usize) -> Map {
    map_of(bytes, buckets)
}

fn map_of<S: Structure>(bytes: usize, buckets: usize) -> Map<S> {
    let make = |carve: &mut Carve| {
        let heap = Heap::new(carve, bytes);
        Map::new(carve, heap, buckets)
    };
    let mut measure = Carve::measure_for(4);
    let _ = make(&mut measure);
    make(&mut Carve::new(for_test(measure.used()), 4))
}

fn at(now: u64) -> Context {
    Context { net: no_net(), now }
}

fn get(map: Map, now: u64, key: &[u8]) -> Option<Vec<u8>> {
    let locked = map.lock(&G, &at(now), key.into()).unwrap();
    let value = locked.value().map(|value| (0..value.len()).map(|at| value.get(at)).collect());
    locked.unlock().unwrap();
    value
}

fn set<G: Group, S: Structure>(g: &G, map: Map<S>, key: &[u8], value: &[u8], expires: u64) -> bool {
    let Some(fresh) = map.fresh(g, &at(0), key.into(), value.into(), 0).unwrap() else { return false };
    let mut locked = map.lock(g, &at(0), key.into()).unwrap();
    locked.put(fresh);
    locked.set_expires(expires);
    locked.unlock().unwrap();
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn it_is_a_map(steps in prop::collection::vec((0u8..6, 0u8..20, prop::collection::vec(any::<u8>(), 0..300)), 0..200)) {
        let map = map(4 << 20, 4);
        let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for (step, key, value) in steps {
            let key = std::vec![key; key as usize % 5];
            match step {
                0 | 1 => {
                    prop_assert!(set(&G, map, &key, &value, 0));
                    model.insert(key.clone(), value);
                }
                2 => {
                    let mut locked = map.lock(&G, &at(0), key[..].into()).unwrap();
                    prop_assert_eq!(locked.remove(), model.remove(&key).is_some());
                    locked.unlock().unwrap();
                }
                3 => {
                    let mut locked = map.lock(&G, &at(0), key[..].into()).unwrap();
                    let end = locked.value().map_or(0, |value| value.len());
                    if locked.write_at(end, value[..].into()) {
                        model.get_mut(&key).unwrap().extend(&value);
                    }
                    locked.unlock().unwrap();
                }
                4 => {
                    let mut locked = map.lock(&G, &at(0), key[..].into()).unwrap();
                    let from = value.first().map_or(0, |byte| *byte as usize);
                    if locked.write_at(from, value[..].into()) {
                        let old = model.get_mut(&key).unwrap();
                        old.resize(old.len().max(from + value.len()), 0);
                        old[from..from + value.len()].copy_from_slice(&value);
                    }
                    locked.unlock().unwrap();
                }
                _ => {
                    let mut locked = map.lock(&G, &at(0), key[..].into()).unwrap();
                    if locked.overwrite(value[..].into(), 0) {
                        *model.get_mut(&key).unwrap() = value;
                    }
                    locked.unlock().unwrap();
                }
            }
            prop_assert_eq!(get(map, 0, &key), model.get(&key).cloned());
            prop_assert_eq!(map.len(&G), model.len() as u64);
        }
        map.clear(&G, &at(0)).unwrap();
        prop_assert_eq!((map.len(&G), map.heap.used(&G)), (0, 0));
    }
}

#[test]
fn entries_expire() {
    let map = map(4 << 20, 16);
    assert!(set(&G, map, b"key", b"value", 100));
    assert_eq!(get(map, 99, b"key").as_deref(), Some(&b"value"[..]));
    assert_eq!(get(map, 100, b"key"), None);
    assert_eq!((map.len(&G), map.heap.used(&G)), (0, 0));
}

#[test]
fn memory_is_bounded_and_the_used_entries_stay() {
    let map = map(4 << 20, 1024);
    for number in 0u32..20_000 {
        assert!(set(&G, map, &number.to_le_bytes(), &[7; 1000], 0), "{number}");
        assert!(get(map, 0, &0u32.to_le_bytes()).is_some(), "it is used all the time, and {number} is new");
    }
    assert!(map.evicted(&G) > 10_000 && map.len(&G) < 4100, "{} {}", map.evicted(&G), map.len(&G));
    assert!(set(&G, map, b"large", &std::vec![1; 1 << 20], 0), "small entries make room for a large one");
    assert_eq!(get(map, 0, b"large").unwrap().len(), 1 << 20);
}

#[test]
fn what_must_not_be_lost_is_refused_when_there_is_no_room() {
    let map = map(4 << 20, 1024).without_eviction();
    let stored =
        (0u32..20_000).take_while(|number| set(&G, map, &number.to_le_bytes(), &[7; 1000], 0)).count();
    assert!((2000..4100).contains(&stored) && map.evicted(&G) == 0, "{stored}");
    assert!(get(map, 0, &0u32.to_le_bytes()).is_some() && map.len(&G) == stored as u64);
}

#[test]
fn a_pinned_value_outlives_its_key() {
    let map = map(4 << 20, 16);
    assert!(set(&G, map, b"key", b"value", 0));
    let mut locked = map.lock(&G, &at(0), b"key".into()).unwrap();
    let pin = locked.pin().unwrap();
    assert!(!locked.overwrite(b"other".into(), 0), "somebody reads it");
    locked.unlock().unwrap();
    map.clear(&G, &at(0)).unwrap();
    assert!(set(&G, map, b"key", b"another", 0));
    assert_eq!(map.pinned(&pin), b"value");
    map.unpin(&G, &at(0), pin).unwrap();
    map.clear(&G, &at(0)).unwrap();
    assert_eq!(map.heap.used(&G), 0);
}

/// A value whose root names one more chunk.
#[derive(Clone, Copy, Debug)]
enum OneChunk {}

#[allow(unsafe_code)]
// SAFETY: the root names the chunk, which nobody else has.
unsafe impl Structure for OneChunk {
    const ROOT: usize = 4;

    fn free<G: Group>(g: &G, net: Net, chunks: Chunks, entry: Chunk) -> Result<()> {
        chunks.free(g, net, Chunk::from_raw(chunks.root::<Self>(entry).u32(0).get()).unwrap())
    }
}

#[allow(unsafe_code)]
fn set_structure(map: Map<OneChunk>, key: &[u8], expires: u64) {
    let chunk = map.room(&G, &at(0), 1000).unwrap().unwrap();
    // SAFETY: a value has a chunk of its own.
    let fresh = unsafe { map.fresh_structure(&G, &at(0), key.into(), |root| root.u32(0).set(chunk.raw())) };
    let fresh = fresh.unwrap().unwrap();
    let mut locked = map.lock(&G, &at(0), key.into()).unwrap();
    locked.put(fresh);
    locked.set_expires(expires);
    assert!(locked.is_structure() && locked.value().is_some_and(|value| value.is_empty()));
    assert!(!locked.overwrite(b"x".into(), 0) && !locked.write_at(0, b"x".into()), "it is no byte string");
    locked.unlock().unwrap();
}

#[test]
fn structures_are_freed_with_their_keys_and_never_evicted() {
    let map = map_of::<OneChunk>(4 << 20, 16);
    let is_freed = || (map.len(&G), map.heap.used(&G)) == (0, 0);
    set_structure(map, b"expires", 100);
    let locked = map.lock(&G, &at(100), b"expires".into()).unwrap();
    assert!(locked.value().is_none());
    locked.unlock().unwrap();
    assert!(is_freed());

    set_structure(map, b"removed", 0);
    let mut locked = map.lock(&G, &at(0), b"removed".into()).unwrap();
    let pin = locked.pin().unwrap();
    assert!(locked.remove());
    locked.unlock().unwrap();
    assert!(map.heap.used(&G) >= 1000, "it is pinned");
    map.unpin(&G, &at(0), pin).unwrap();
    assert!(is_freed());

    set_structure(map, b"replaced", 0);
    assert!(set(&G, map, b"replaced", b"", 0));
    assert!(map.heap.used(&G) < 1000);
    set_structure(map, b"cleared", 0);
    map.clear(&G, &at(0)).unwrap();
    assert!(is_freed());

    set_structure(map, b"stays", 0);
    for number in 0u32..10_000 {
        assert!(set(&G, map, &number.to_le_bytes(), &[7; 1000], 0), "{number}");
    }
    let locked = map.lock(&G, &at(0), b"stays".into()).unwrap();
    assert!(map.evicted(&G) > 1000 && locked.is_structure());
    locked.unlock().unwrap();
    map.clear(&G, &at(0)).unwrap();
    assert_eq!(map.heap.used(&G), 0);
}

#[test]
fn blocks_share_it() {
    let map = map(8 << 20, 64);
    std::thread::scope(|scope| {
        for index in 0..4u32 {
            scope.spawn(move || {
                let g = Solo::new(index, 4);
                for round in 0..3000u32 {
                    let key = (round % 100).to_le_bytes();
                    assert!(set(&g, map, &key, &[index as u8; 100], 0));
                    let locked = map.lock(&g, &at(0), key[..].into()).unwrap();
                    let value = locked.value().unwrap();
                    assert!((1..100).all(|at| value.get(at) == value.get(0)), "torn");
                    locked.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(map.len(&G), 100);
    map.clear(&G, &at(0)).unwrap();
    assert_eq!(map.heap.used(&G), 0);
}

/// A lane that is late in its search of a bucket must not find what the leader has put there
/// meanwhile.
#[test]
fn lanes_of_a_block_agree() {
    use gpunet_device::group::Lanes;
    let map = map(8 << 20, 1);
    std::thread::scope(|scope| {
        for lane in (0..2).flat_map(|block| Lanes::group(block, 2, 3)) {
            scope.spawn(move || {
                for round in 0..1000u32 {
                    let key = [lane.index() as u8, (round % 7) as u8];
                    assert!(set(&lane, map, &key, &round.to_le_bytes(), 0));
                    let mut locked = map.lock(&lane, &at(0), key[..].into()).unwrap();
                    assert!(locked.write_at(4, key[..].into()) && locked.value().unwrap().len() == 6);
                    let removed = round % 3 == 0 && locked.remove();
                    locked.unlock().unwrap();
                    let count = map.len(&lane);
                    assert_eq!(lane.sum(count as u32), 3 * count as u32, "all lanes see the same");
                    let locked = map.lock(&lane, &at(0), key[..].into()).unwrap();
                    assert_eq!(locked.value().is_none(), removed);
                    locked.unlock().unwrap();
                }
            });
        }
    });
    map.clear(&G, &at(0)).unwrap();
    assert_eq!(map.heap.used(&G), 0);
}

#[test]
fn spaces_have_keys_of_their_own() {
    let map = map(4 << 20, 4);
    let context = at(0);
    for space in 0..SPACES {
        let key = Key::in_space(b"key".into(), space);
        let fresh = map.fresh(&G, &context, key, (&[space as u8][..]).into(), 0).unwrap().unwrap();
        let mut locked = map.lock(&G, &context, key).unwrap();
        assert!(locked.value().is_none());
        locked.put(fresh);
        locked.unlock().unwrap();
    }
    assert_eq!((map.len(&G), map.len_of(&G, 3)), (SPACES as u64, 1));
    assert_eq!(map.clear_some(&G, &context, Some(3), 0, usize::MAX).unwrap(), None);
    assert_eq!((map.len(&G), map.len_of(&G, 3), map.len_of(&G, 4)), (SPACES as u64 - 1, 0, 1));
    let locked = map.lock(&G, &context, Key::in_space(b"key".into(), 7)).unwrap();
    assert_eq!(locked.value().unwrap().get(0), 7);
}

/// Groups move amounts between keys of one map, which has less buckets than keys: no sum that they
/// see is of half a change.
#[test]
fn what_is_done_to_held_keys_happens_at_once() {
    let map = map(4 << 20, 8);
    let name = |number: usize| std::format!("key {}", number % 12).into_bytes();
    for number in 0..12 {
        assert!(set(&G, map, &name(number), &1000u64.to_le_bytes(), 0));
    }
    std::thread::scope(|scope| {
        for index in 0..4 {
            scope.spawn(move || {
                let (g, context) = (Solo::new(index, 4), at(0));
                for step in 0..500usize {
                    let names: Vec<_> = if step % 3 == 0 {
                        (0..12).map(name).collect()
                    } else {
                        [step * 7, step * 5 + index as usize + 1].map(name).to_vec()
                    };
                    let mut hold = map.keys_to_hold(&g, &context, names.len()).unwrap().unwrap();
                    for name in &names {
                        map.add_to_hold(&g, &mut hold, &Key::from(&name[..]));
                    }
                    map.hold(&g, &context, &hold).unwrap();
                    let read = |name: &Vec<u8>| {
                        let locked = map.lock(&g, &context, Key::from(&name[..]).held()).unwrap();
                        let value = locked.value().unwrap();
                        u64::from_le_bytes(core::array::from_fn(|at| value.get(at)))
                    };
                    let write = |name: &Vec<u8>, value: u64| {
                        let mut locked = map.lock(&g, &context, Key::from(&name[..]).held()).unwrap();
                        assert!(locked.overwrite((&value.to_le_bytes()).into(), 0));
                    };
                    if names.len() == 12 {
                        assert_eq!(names.iter().map(read).sum::<u64>(), 12_000);
                    } else if names[0] != names[1] {
                        write(&names[0], read(&names[0]) - 1);
                        // Others have their turn in the middle.
                        std::thread::yield_now();
                        write(&names[1], read(&names[1]) + 1);
                    }
                    map.release(&g, &context, hold).unwrap();
                }
            });
        }
    });
}

#[test]
fn a_key_that_is_not_held_cannot_be_locked_as_held() {
    let (map, context) = (map(4 << 20, 64), at(0));
    let key = Key::from(b"key").held();
    assert_eq!(map.lock(&G, &context, key).err(), Some(gpunet_device::Error::InvalidArgument));
    let mut hold = map.keys_to_hold(&G, &context, 1).unwrap().unwrap();
    map.add_to_hold(&G, &mut hold, &key);
    map.hold(&G, &context, &hold).unwrap();
    assert!(map.lock(&G, &context, key).is_ok());
    map.release(&G, &context, hold).unwrap();
    assert!(map.lock(&G, &context, key).is_err() && map.lock(&G, &context, b"key".into()).is_ok());
}

#[test]
fn a_group_that_holds_buckets_makes_room_from_the_others() {
    let (map, context) = (map(4 << 20, 64), at(0));
    for number in 0..4000u32 {
        assert!(set(&G, map, &number.to_le_bytes(), &[1; 900], 0));
    }
    let keys: Vec<_> = (3990..4000u32).map(u32::to_le_bytes).collect();
    let mut hold = map.keys_to_hold(&G, &context, 10).unwrap().unwrap();
    for key in &keys {
        map.add_to_hold(&G, &mut hold, &Key::from(key));
    }
    map.hold(&G, &context, &hold).unwrap();
    for number in 0..100u32 {
        let fresh = map.fresh(&G, &context, (&number.to_be_bytes()).into(), (&[2; 5000]).into(), 0).unwrap();
        map.discard(&G, &context, fresh.expect("there is room")).unwrap();
    }
    map.release(&G, &context, hold).unwrap();
}

/// A full cache of entries of 1,000 bytes, of which some are read again and again.
fn full_cache(bytes: usize, hot: impl Fn(u32) -> bool) -> (Map, Vec<u32>) {
    let map = map(bytes, bytes / 256);
    let mut keys = Vec::new();
    // Once and a half as many as there is room for, so that the hand has gone round.
    for number in 0..(bytes / 2048 * 3 / 2) as u32 {
        assert!(set(&G, map, &number.to_le_bytes(), &[number as u8; 1000], 0));
        keys.push(number);
        if number.is_multiple_of(64) {
            keys.iter().filter(|key| hot(**key)).for_each(|key| drop(get(map, 0, &key.to_le_bytes())));
        }
    }
    keys.retain(|key| get(map, 0, &key.to_le_bytes()).is_some());
    (map, keys)
}

fn is_there(map: Map, key: u32) -> bool {
    get(map, 0, &key.to_le_bytes()).is_some()
}

#[test]
fn a_large_value_takes_the_place_of_as_many_bytes_and_hot_keys_stay() {
    for len in [1_000_000, 1 << 20, 100_000, 10_000] {
        let hot = |key: u32| key.is_multiple_of(97);
        let (map, keys) = full_cache(64 << 20, hot);
        let before = (map.len(&G), keys.iter().filter(|key| hot(**key)).count());
        assert!(set(&G, map, b"large", &std::vec![1; len], 0));
        let evicted = (before.0 + 1 - map.len(&G)) as usize * 1000;
        let stay = keys.iter().filter(|key| hot(**key) && is_there(map, **key)).count();
        assert!(evicted <= 3 * len.max(1000), "{len}: {evicted} bytes were evicted");
        assert!(stay * 100 >= before.1 * 95, "{len}: {stay} of {} hot keys stay", before.1);
        map.clear(&G, &at(0)).unwrap();
        assert_eq!(map.heap().used(&G), 0);
    }
}

/// Groups set values of any size in a small cache: what one has made room for no other takes, and
/// no value is torn.
#[test]
fn groups_that_make_room_for_large_values_leave_each_other_alone() {
    let map = map(8 << 20, 4096);
    std::thread::scope(|scope| {
        for index in 0..4u32 {
            scope.spawn(move || {
                let (g, mut random) = (Solo::new(index, 4), u64::from(index) + 1);
                for step in 0..3000u32 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let len = [100, 1000, 3000, 20_000, 100_000, 600_000]
                        [(random >> 33) as usize % if step % 50 == 0 { 6 } else { 4 }];
                    let key = ((random >> 40) as u32 % 5000).to_le_bytes();
                    let byte = (random >> 20) as u8;
                    // Pins of others, and what they fill at this moment, may leave no room.
                    let _ = set(&g, map, &key, &std::vec![byte; len], 0);
                    let found = get(map, 0, &key).unwrap_or_default();
                    assert!(found.iter().all(|other| *other == found[0]));
                }
            });
        }
    });
    map.clear(&G, &at(0)).unwrap();
    assert_eq!((map.heap().used(&G), map.len(&G)), (0, 0));
    for _ in 0..2 {
        assert!(
            map.heap().alloc(&G, no_net(), crate::MAX_CHUNK).unwrap().is_some(),
            "all memory is one again"
        );
    }
}

#[test]
fn a_region_with_a_pinned_entry_is_left() {
    let map = map(4 << 20, 256);
    for number in 0..4096u32 {
        assert!(set(&G, map, &number.to_le_bytes(), &[7; 900], 0));
    }
    // One of each 64 KiB.
    let mut pins = Vec::new();
    for number in (0..4096u32).rev().step_by(60) {
        let mut locked = map.lock(&G, &at(0), (&number.to_le_bytes()).into()).unwrap();
        pins.extend(locked.pin());
        locked.unlock().unwrap();
    }
    assert!(!set(&G, map, b"large", &std::vec![1; 1 << 20], 0), "there is no such region");
    assert!(pins.iter().all(|pin| map.pinned(pin) == [7; 900]));
    for pin in pins {
        map.unpin(&G, &at(0), pin).unwrap();
    }
    assert!(set(&G, map, b"large", &std::vec![1; 1 << 20], 0));
}

/// Keys that somebody has found to share a bucket of one server share none of another.
#[test]
fn keys_of_one_bucket_are_not_of_one_bucket_under_another_seed() {
    let make = |seed| {
        let make = |carve: &mut Carve| {
            let heap = Heap::new(carve, 4 << 20);
            Map::<NoStructure>::new(carve, heap, 1 << 10)
        };
        let mut measure = Carve::measure();
        let _ = make(&mut measure);
        make(&mut Carve::new(for_test(measure.used()), 1).with_seed(seed))
    };
    let bucket = |map: &Map, number: &u32| map.hash(&Key::from(&number.to_le_bytes())) as usize & map.mask;
    let (one, other) = (make([1, 2]), make([1, 3]));
    let keys: Vec<u32> = (0..1_000_000).filter(|number| bucket(&one, number) == 7).collect();
    let mut lens = HashMap::new();
    keys.iter().for_each(|number| *lens.entry(bucket(&other, number)).or_insert(0) += 1);
    assert!(
        keys.len() > 500 && lens.values().all(|len| *len < 15),
        "{} {:?}",
        keys.len(),
        lens.values().max()
    );
}
