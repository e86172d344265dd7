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
    fn it_is_a_map(steps in prop::collection::vec((0u8..5, 0u8..20, prop::collection::vec(any::<u8>(), 0..300)), 0..200)) {
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
                    if locked.append(value[..].into()) {
                        model.get_mut(&key).unwrap().extend(&value);
                    }
                    locked.unlock().unwrap();
                }
                _ => {
                    let mut locked = map.lock(&G, &at(0), key[..].into()).unwrap();
                    if locked.overwrite(value[..].into()) {
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
    assert!(!locked.overwrite(b"other".into()), "somebody reads it");
    locked.unlock().unwrap();
    map.clear(&G, &at(0)).unwrap();
    assert!(set(&G, map, b"key", b"another", 0));
    assert!(map.pinned(&pin).equals(b"value".into()));
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
    assert!(!locked.overwrite(b"x".into()) && !locked.append(b"x".into()), "it is no byte string");
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

/// A lane that is late in its search of a bucket must not find what the leader has put there meanwhile.
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
                    assert!(locked.append(key[..].into()) && locked.value().unwrap().len() == 6);
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
