//! Callers and the host's side, in the memory of a test.

use crate::caller::Limit;
use crate::test_calls::TestCalls;
use crate::{Failure, Function, Late, Name, RESOLVE, Request, Return, Status, Taken, Ticket, wire};
use gpunet_device::{Buffer, Error, Timeout};
use proptest::prelude::*;

const ECHO: Function<[u32; 3], [u32; 3]> = Function::new(7);
const LONG: Function<[u32; 40], [u32; 100]> = Function::new(8);
const NOW: Timeout = Timeout::NON_BLOCKING;

fn take(requests: &mut crate::Requests) -> Option<Request> {
    let mut request = Request::empty();
    (requests.take(&mut request) == Taken::Request).then_some(request)
}

#[test]
fn a_call_is_answered() {
    let memory = TestCalls::new(2, 4, 160, 400);
    let ((g, mut caller), mut requests, mut answers) =
        (memory.caller(1), memory.requests(), memory.answers(1));
    let mut ticket = caller.start(&g, ECHO, [1, 2, 3], NOW).unwrap();
    assert_eq!(caller.wait(&g, &mut ticket, NOW), Err(Failure::Wait(Error::WouldBlock)));
    let request = take(&mut requests).unwrap();
    assert_eq!((request.function(), request.from().channel(), request.value(ECHO)), (7, 1, Some([1, 2, 3])));
    assert_eq!(request.value(LONG), None, "other sizes");
    answers.expect(request.from());
    assert_eq!(answers.answer(request.from(), &[4_u32, 5, 6]), Ok(()));
    assert_eq!(answers.answer(request.from(), &[7_u32, 8, 9]), Err(Late), "it comes twice");
    assert_eq!(caller.wait(&g, &mut ticket, NOW), Ok([4, 5, 6]));
    assert_eq!(caller.wait(&g, &mut ticket, NOW), Err(Failure::NoTicket));
    assert!(take(&mut requests).is_none());
}

#[test]
fn long_requests_and_answers_arrive_whole() {
    let memory = TestCalls::new(1, 2, 160, 400);
    let ((g, mut caller), mut requests, mut answers) =
        (memory.caller(0), memory.requests(), memory.answers(0));
    let mut ticket = caller.start(&g, LONG, std::array::from_fn(|at| at as u32), NOW).unwrap();
    let request = take(&mut requests).unwrap();
    assert_eq!(request.value(LONG).unwrap()[39], 39);
    answers.expect(request.from());
    answers.answer(request.from(), &std::array::from_fn::<u32, 100, _>(|at| at as u32 * 2)).unwrap();
    let answer = caller.wait(&g, &mut ticket, NOW).unwrap();
    assert!(answer.iter().enumerate().all(|(at, &word)| word == at as u32 * 2));
}

fn buffer(bytes: &mut [u8]) -> Buffer {
    // SAFETY: each test keeps the bytes while calls use them.
    #[allow(unsafe_code)]
    unsafe {
        Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len())
    }
}

#[test]
fn bytes_of_every_length_arrive_at_every_address() {
    let memory = TestCalls::new(1, 2, 160, 400);
    let ((g, mut caller), mut requests, mut answers) =
        (memory.caller(0), memory.requests(), memory.answers(0));
    for len in (0..=70).chain([159, 160]) {
        let mut asked: Vec<u8> = (0..=len).map(|at| at as u8 + 3).collect();
        for shift in 0..2.min(len + 1) {
            let mut ticket = caller.start_bytes(&g, 9, buffer(&mut asked[shift..len]), 400, NOW).unwrap();
            asked[shift..].fill(0);
            let request = take(&mut requests).unwrap();
            let expected: Vec<u8> = (shift..len).map(|at| at as u8 + 3).collect();
            assert_eq!((request.bytes(), request.answer_room()), (&expected[..], 400));
            answers.expect(request.from());
            answers.answer_bytes(request.from(), request.bytes()).unwrap();
            let mut heard = vec![0xee; len + 3];
            let room = buffer(&mut heard[1..len + 1]);
            assert_eq!(caller.wait_bytes(&g, &mut ticket, room, NOW), Ok(len - shift));
            assert_eq!(&heard[1..=len - shift], expected);
            assert!(heard[len - shift + 1..].iter().all(|&byte| byte == 0xee), "it writes no more");
            asked = (0..=len).map(|at| at as u8 + 3).collect();
        }
    }
}

#[test]
fn bytes_that_do_not_fit_are_refused() {
    let memory = TestCalls::new(1, 2, 12, 60);
    let ((g, mut caller), mut requests, mut answers) =
        (memory.caller(0), memory.requests(), memory.answers(0));
    let mut bytes = [7; 100];
    let mut start = |caller: &mut crate::Caller, len: usize, room| {
        caller.start_bytes(&g, 9, buffer(&mut bytes[..len]), room, NOW)
    };
    assert_eq!(start(&mut caller, 21, 0).unwrap_err(), Failure::Sizes);
    let mut ticket = start(&mut caller, 20, 1 << 40).unwrap();
    let request = take(&mut requests).unwrap();
    assert_eq!(request.answer_room(), 60, "as many as there can be");
    let from = request.from();
    answers.expect(from);
    answers.answer_bytes(from, &[1; 5]).unwrap();
    let mut short = [0; 4];
    assert_eq!(caller.wait_bytes(&g, &mut ticket, buffer(&mut short), NOW), Err(Failure::Sizes));
    assert!(ticket.is_done() && short == [0; 4]);
    // A length that no host writes.
    let mut ticket = start(&mut caller, 1, 60).unwrap();
    let head = wire::unit(wire::answer_head(61, Status::Answered as u16), wire::answer_tag(1));
    memory.answer_unit(0, 0, 0).set(head);
    memory.answer_unit(0, 0, 1).set(head);
    let mut long = [0; 200];
    assert_eq!(caller.wait_bytes(&g, &mut ticket, buffer(&mut long), NOW), Err(Failure::Malformed));
    assert!(caller.tell_bytes(&g, 9, buffer(&mut short), NOW).is_ok());
}

#[test]
fn failures_arrive() {
    let memory = TestCalls::new(1, 4, 12, 12);
    let ((g, mut caller), mut requests, mut answers) =
        (memory.caller(0), memory.requests(), memory.answers(0));
    let mut fail = |store: &mut dyn FnMut(&mut crate::Answers, Return)| {
        let mut ticket = caller.start(&g, ECHO, [0; 3], NOW).unwrap();
        let from = take(&mut requests).unwrap().from();
        answers.expect(from);
        store(&mut answers, from);
        caller.wait(&g, &mut ticket, NOW).unwrap_err()
    };
    assert_eq!(
        fail(&mut |to, from| to.refuse(from, Error::AccessDenied).unwrap()),
        Failure::Refused(Error::AccessDenied)
    );
    assert_eq!(fail(&mut |to, from| to.fail(from, Status::Panicked).unwrap()), Failure::Panicked);
    assert_eq!(fail(&mut |to, from| to.fail(from, Status::NoFunction).unwrap()), Failure::NoFunction);
    assert_eq!(fail(&mut |to, from| to.answer(from, &1_u32).unwrap()), Failure::Malformed);
    // What no host writes.
    let mut ticket = caller.start(&g, ECHO, [0; 3], NOW).unwrap();
    for (status, number) in [(u16::MAX, 4), (0, 5), (99, 6)] {
        let head = wire::unit(wire::answer_head(0, status), wire::answer_tag(number));
        memory.answer_unit(0, 0, 0).set(head);
        assert_eq!(caller.wait(&g, &mut ticket, NOW), Err(Failure::Malformed));
        take(&mut requests).unwrap();
        ticket = caller.start(&g, ECHO, [0; 3], NOW).unwrap();
    }
    assert_eq!(caller.start(&g, LONG, [0; 40], NOW).unwrap_err(), Failure::Sizes);
}

#[test]
fn an_answer_after_its_caller_gave_it_up_is_not_the_next_calls() {
    let memory = TestCalls::new(1, 1, 12, 12);
    let ((g, mut caller), mut requests, mut answers) =
        (memory.caller(0), memory.requests(), memory.answers(0));
    let first = caller.start(&g, ECHO, [1; 3], NOW).unwrap();
    assert_eq!(caller.start(&g, ECHO, [2; 3], NOW).unwrap_err(), Failure::TooMany);
    caller.give_up(first);
    assert_eq!(
        caller.start(&g, ECHO, [2; 3], NOW).unwrap_err(),
        Failure::Wait(Error::WouldBlock),
        "the host has not copied the request whose place it needs"
    );
    let old = take(&mut requests).unwrap().from();
    answers.expect(old);
    let mut second = caller.start(&g, ECHO, [2; 3], NOW).unwrap();
    // The answer to the first comes before the host has seen the second, and then again.
    assert_eq!(answers.answer(old, &[1_u32; 3]), Ok(()));
    assert_eq!(caller.wait(&g, &mut second, NOW), Err(Failure::Wait(Error::WouldBlock)));
    let new = take(&mut requests).unwrap().from();
    answers.expect(new);
    assert_eq!(answers.answer(old, &[1_u32; 3]), Err(Late));
    answers.answer(new, &[2_u32; 3]).unwrap();
    assert_eq!(answers.answer(old, &[1_u32; 3]), Err(Late));
    assert_eq!(caller.wait(&g, &mut second, NOW), Ok([2; 3]));
}

#[test]
fn the_next_caller_of_a_channel_gets_no_answer_of_the_last() {
    let memory = TestCalls::new(1, 2, 12, 12);
    let (mut requests, mut answers) = (memory.requests(), memory.answers(0));
    let (g, mut caller) = memory.caller(0);
    let _gone = caller.start(&g, ECHO, [1; 3], NOW).unwrap();
    let (other, mut homeless) = memory.caller(5);
    assert_eq!(homeless.start(&other, ECHO, [1; 3], NOW).unwrap_err(), Failure::NoChannel);
    caller.close(&g);
    let (g, mut caller) = memory.caller(5);
    let mut ticket = caller.start(&g, ECHO, [2; 3], NOW).unwrap();
    let old = take(&mut requests).unwrap();
    answers.expect(old.from());
    answers.answer(old.from(), &[1_u32; 3]).unwrap();
    assert_eq!(caller.wait(&g, &mut ticket, NOW), Err(Failure::Wait(Error::WouldBlock)));
    assert_eq!(take(&mut requests).unwrap().value(ECHO), Some([2; 3]));
}

/// A call that has waited for room waits for its answer for the rest of its time, not for all of it
/// again.
#[test]
fn the_waits_of_a_call_share_its_time() {
    let hour = Timeout::secs(3600);
    let left = Limit::of(hour).left();
    assert!(left.packed() < hour.packed() && !left.is_non_blocking(), "{left:?}");
    for endless in [Timeout::NEVER, NOW] {
        assert_eq!(Limit::of(endless).left(), endless);
    }
    let short = Limit::of(Timeout::ns(1));
    while short.left() != Timeout::ns(1) {}
    let memory = TestCalls::new(1, 1, 12, 12);
    let ((g, mut caller), mut requests) = (memory.caller(0), memory.requests());
    assert!(caller.limit(hour).left().packed() < hour.packed(), "it has seen no room yet");
    caller.tell(&g, ECHO, [1; 3], NOW).unwrap();
    assert_eq!(caller.call(&g, ECHO, [2; 3], NOW), Err(Failure::Wait(Error::WouldBlock)));
    take(&mut requests).unwrap();
    let mut bytes = [0; 12];
    let bytes = buffer(&mut bytes);
    let unanswered = caller.call_bytes(&g, 7, bytes, bytes, NOW);
    assert_eq!(unanswered, Err(Failure::Wait(Error::WouldBlock)), "and its ticket is free again");
    take(&mut requests).unwrap();
    assert!(caller.start(&g, ECHO, [3; 3], NOW).is_ok());
}

#[test]
fn names_are_checked() {
    let name = Name::new("localhost", 80).unwrap();
    assert_eq!((name.name(), name.port()), (Some("localhost"), 80));
    assert!(Name::new(&"a".repeat(254), 1).is_none());
    assert_eq!(RESOLVE.number(), u32::MAX);
}

/// What may happen, with a number that chooses among what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Tell,
    Take,
    Answer(usize),
    Wait(usize),
    GiveUp(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Start),
        1 => Just(Step::Tell),
        3 => Just(Step::Take),
        3 => any::<usize>().prop_map(Step::Answer),
        3 => any::<usize>().prop_map(Step::Wait),
        1 => any::<usize>().prop_map(Step::GiveUp),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    /// Whatever the order: a ticket gets the answer to its own request or none, requests arrive
    /// once and in order, an answer is stored once and only while its ticket may wait for it.
    #[test]
    fn calls_are_those_of_the_model(tickets_log2 in 0u32..3, steps in steps()) {
        let tickets = 1 << tickets_log2;
        let memory = TestCalls::new(1, tickets, 12, 12);
        let (mut requests, mut answers) = (memory.requests(), memory.answers(0));
        let (mut g, mut caller) = memory.caller(0);
        let mut live: Vec<(Ticket<[u32; 3]>, u32, bool)> = Vec::new();
        let (mut sent, mut taken) = (0_u32, 0_u32);
        // Who was taken, with its number; what each ticket's place may still get.
        let mut known: Vec<(Return, u32)> = Vec::new();
        let mut open: Vec<Return> = Vec::new();
        for step in steps {
            match step {
                Step::Start => match caller.start(&g, ECHO, [sent; 3], NOW) {
                    Ok(ticket) => {
                        prop_assert!(sent - taken < tickets && live.len() < tickets as usize);
                        live.push((ticket, sent, false));
                        sent += 1;
                    }
                    Err(Failure::TooMany) => prop_assert_eq!(live.len(), tickets as usize),
                    Err(Failure::Wait(_)) => prop_assert_eq!(sent - taken, tickets),
                    Err(other) => panic!("{other:?}"),
                },
                Step::Tell => {
                    let told = caller.tell(&g, ECHO, [sent; 3], NOW);
                    prop_assert_eq!(told.is_ok(), sent - taken < tickets);
                    sent += u32::from(told.is_ok());
                }
                Step::Take => match take(&mut requests) {
                    Some(request) => {
                        prop_assert_eq!(request.value(ECHO), Some([taken; 3]));
                        taken += 1;
                        answers.expect(request.from());
                        if request.from().is_wanted() {
                            open.retain(|other| other.slot() != request.from().slot());
                            open.push(request.from());
                            known.push((request.from(), taken - 1));
                        }
                    }
                    None => prop_assert_eq!(taken, sent),
                },
                Step::Answer(which) if !known.is_empty() => {
                    let (to, number) = known[which % known.len()];
                    let stored = answers.answer(to, &[number * 2; 3]);
                    prop_assert_eq!(stored.is_ok(), open.contains(&to));
                    open.retain(|other| *other != to);
                    if stored.is_ok() {
                        live.iter_mut().filter(|(_, other, _)| *other == number).for_each(|one| one.2 = true);
                    }
                }
                Step::Wait(which) if !live.is_empty() => {
                    let at = which % live.len();
                    let (ticket, number, answered) = &mut live[at];
                    match caller.wait(&g, ticket, NOW) {
                        Ok(answer) => {
                            prop_assert!(*answered);
                            prop_assert_eq!(answer, [*number * 2; 3]);
                            drop(live.remove(at));
                        }
                        Err(error) => {
                            prop_assert_eq!(error, Failure::Wait(Error::WouldBlock));
                            prop_assert!(!*answered);
                        }
                    }
                }
                Step::GiveUp(which) if !live.is_empty() => caller.give_up(live.remove(which % live.len()).0),
                Step::Reopen => {
                    caller.close(&g);
                    (g, caller) = memory.caller(0);
                    live.clear();
                }
                _ => {}
            }
        }
    }

    /// Whatever a kernel writes: the host copies nothing beyond a place, goes on, and takes one
    /// request at a look.
    #[test]
    fn a_hostile_channel_is_judged(
        heads in proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), any::<bool>()), 1..20),
    ) {
        let memory = TestCalls::new(2, 4, 12, 12);
        let mut requests = memory.requests();
        let mut number = 0;
        for (function, lengths, slot, full) in heads {
            let lengths = lengths & 0x001f_001f;
            for at in 0..8 {
                let word = [function, lengths, slot % 6][at.min(2)];
                let tag = if full || at < 3 { wire::request_tag(number / 4) } else { 0 };
                memory.request_unit(0, number, at).set(wire::unit(word, tag));
            }
            let mut request = Request::empty();
            let (len, answer) = (lengths & 0xffff, lengths >> 16);
            let sound = len <= 20 && answer <= 28 && slot % 6 < 4;
            let expected = match (sound, full || len == 0) {
                (true, true) => Taken::Request,
                (true, false) => Taken::Nothing,
                (false, _) => Taken::Malformed,
            };
            prop_assert_eq!(requests.take(&mut request), expected);
            number += u64::from(expected != Taken::Nothing);
            // The other channel goes on.
            let (g, mut caller) = memory.caller(1);
            caller.tell(&g, ECHO, [9; 3], NOW).unwrap();
            let next = take(&mut requests).unwrap();
            prop_assert_eq!((next.from().channel(), next.value(ECHO)), (1, Some([9; 3])));
            caller.close(&g);
        }
    }
}
