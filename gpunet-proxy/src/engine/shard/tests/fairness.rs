//! No stream waits for others longer than their budgets last, however much these move. The test
//! counts bytes and turns of the others, not time.

use super::*;
use crate::engine::shard::scan::SLICE;
use crate::engine::shard::stream::{BUDGET, CHUNK};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};

/// Streams that always have something to send, space to receive into, and a peer that takes and
/// gives without end.
const FLOODERS: u32 = 4;
/// Their rings hold twice what a turn may move.
const FLOOD_LOG2: u8 = (2 * BUDGET as u64 * CHUNK).ilog2() as u8;
/// Most that one of them moves in a turn of the thread, which drives each ready stream twice.
const MOST_PER_TURN: u64 = 2 * BUDGET as u64 * CHUNK;
const MESSAGE: u64 = 8;

/// A thread with flooders in the first slots.
struct Flooded {
    shard: Shard,
    state: Arc<AttachmentState>,
    /// Bytes that each flooder has sent, and received.
    moved: Vec<[Arc<AtomicU64>; 2]>,
    _requests: ControlReceiver,
}

impl Flooded {
    fn new() -> Self {
        let (mut shard, _requests) = shard(0);
        let state = gpu(&Config::default());
        shard.attach(state.clone());
        let moved = (0..FLOODERS).map(|slot| {
            let moved: [Arc<AtomicU64>; 2] = Default::default();
            let [offer, take] = moved.clone().map(|moved| -> Box<dyn FnMut(usize) -> _ + Send> {
                Box::new(move |len| {
                    moved.fetch_add(len as u64, Ordering::Relaxed);
                    Ok(len)
                })
            });
            open(
                &mut shard,
                &state,
                slot,
                FLOOD_LOG2,
                TestIo {
                    offer,
                    take,
                    ready: Ready::default(),
                    failure: None,
                    fd: None,
                    completed: 0,
                    ends: None,
                },
            );
            moved
        });
        let moved = moved.collect();
        Self { shard, state, moved, _requests }
    }

    /// Takes one turn. The device has filled the flooders' rings before, and emptied the others.
    fn turn(&mut self) {
        let memory = &self.state.memory;
        for slot in 0..FLOODERS {
            let released = memory.released(slot).observe();
            memory.published_words().get(slot as usize).publish(released + (1 << FLOOD_LOG2));
            memory.consumed_words().get(slot as usize).publish(memory.landed(slot).observe());
        }
        let before = self.moved();
        self.shard.turn();
        for (now, before) in self.moved().iter().zip(before) {
            let [sent, received] = [now[0] - before[0], now[1] - before[1]];
            assert!(sent + received <= MOST_PER_TURN, "{sent} and {received} in one turn");
            assert!(sent.min(received) >= MOST_PER_TURN / 4, "{sent} and {received}: one direction starves");
        }
    }

    fn moved(&self) -> Vec<[u64; 2]> {
        let load = |moved: &Arc<AtomicU64>| moved.load(Ordering::Relaxed);
        self.moved.iter().map(|[sent, received]| [load(sent), load(received)]).collect()
    }
}

#[test]
fn many_streams_make_their_round_trips_while_others_flood() {
    const STREAMS: u32 = 100;
    /// One in which the messages go out, and enough for the events of all answers: the thread takes
    /// 64 at a time.
    const TURNS: u32 = 1 + STREAMS.div_ceil(64);
    let mut flooded = Flooded::new();
    let slots = FLOODERS..FLOODERS + STREAMS;
    let mut peers: Vec<UnixStream> = slots
        .clone()
        .map(|slot| {
            let (ours, peer) = UnixStream::pair().unwrap();
            [&ours, &peer].into_iter().for_each(|end| end.set_nonblocking(true).unwrap());
            let [mut output, mut input] = [(); 2].map(|()| ours.try_clone().unwrap());
            let io = TestIo {
                offer: Box::new(move |len| output.write(&vec![0; len])),
                take: Box::new(move |len| input.read(&mut vec![0; len])),
                ready: Ready::default(),
                failure: None,
                fd: Some(ours.into()),
                completed: 0,
                ends: None,
            };
            open(&mut flooded.shard, &flooded.state, slot, 12, io);
            peer
        })
        .collect();
    flooded.turn();
    let state = flooded.state.clone();
    let memory = &state.memory;
    for round in 1..=20 {
        for slot in slots.clone() {
            memory.published_words().get(slot as usize).publish(round * MESSAGE);
        }
        for _ in 0..TURNS {
            flooded.turn();
            for peer in &mut peers {
                let mut message = [0; 64];
                if let Ok(len) = peer.read(&mut message) {
                    peer.write_all(&message[..len]).unwrap();
                }
            }
        }
        for slot in slots.clone() {
            let landed = memory.landed(slot).observe();
            assert_eq!(landed, round * MESSAGE, "the stream in slot {slot} waits longer than {TURNS} turns");
            memory.consumed_words().get(slot as usize).publish(landed);
        }
    }
}

#[test]
fn a_stream_that_was_silent_among_thousands_is_found_while_others_flood() {
    const STREAMS: u32 = 3 * SLICE as u32;
    /// Once round the list.
    const TURNS: u32 = (STREAMS + FLOODERS).div_ceil(SLICE as u32);
    let mut flooded = Flooded::new();
    let (sent, messages) = crossbeam_channel::unbounded();
    for slot in FLOODERS..FLOODERS + STREAMS {
        open(&mut flooded.shard, &flooded.state, slot, 12, TestIo::sink(sent.clone()));
    }
    // All are new, and have been looked at once.
    (0..=TURNS).for_each(|_| flooded.turn());
    let speakers = [FLOODERS, FLOODERS + STREAMS / 2, FLOODERS + STREAMS - 1];
    for slot in speakers {
        let state = flooded.state.clone();
        state.memory.published_words().get(slot as usize).publish(MESSAGE);
        (0..=TURNS).for_each(|_| flooded.turn());
        assert_eq!(messages.try_recv(), Ok(MESSAGE as usize), "the stream in slot {slot} is not found");
        assert!(messages.is_empty());
    }
}
