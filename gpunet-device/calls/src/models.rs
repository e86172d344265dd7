//! Every interleaving of what callers and the host do together, by loom
//! ([`gpunet_device::abi::atomic`]).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-calls --lib --release models`. Each model
//! names a change of the code by which it fails.

use crate::test_calls::TestCalls;
use crate::{Failure, Function, Request, Taken};
use gpunet_device::abi::atomic::{model, yield_now};
use gpunet_device::{Error, Timeout};
use loom::thread;

const ECHO: Function<[u32; 2], [u32; 2]> = Function::new(1);
const NOW: Timeout = Timeout::NON_BLOCKING;

/// A caller's requests arrive whole, once and in order, also where a place is used again; and each
/// answer is whole and that of its request.
///
/// Fails if `Requests::look` does not compare the tags of the payload, if a tag does not change
/// with the lap, if `Requests::take` lets the place go before it has copied it, if `receive` does
/// not compare the tags of the answer, or if an answer's tag is not its request's number.
#[test]
fn requests_and_answers_are_whole() {
    let memory = TestCalls::new(1, 1, 8, 8);
    model(2, move || {
        memory.clear();
        let host = thread::spawn(move || {
            let (mut requests, mut answers) = (memory.requests(), memory.answers(0));
            let (mut request, mut number) = (Request::empty(), 0);
            while number < 2 {
                if requests.take(&mut request) == Taken::Request {
                    assert_eq!(request.value(ECHO), Some([number; 2]), "not whole, or not in order");
                    answers.expect(request.from());
                    answers.answer(request.from(), &[number + 10; 2]).unwrap();
                    number += 1;
                } else {
                    yield_now();
                }
            }
        });
        let (g, mut caller) = memory.caller(0);
        for number in 0..2_u32 {
            let mut ticket = loop {
                match caller.start(&g, ECHO, [number; 2], NOW) {
                    Ok(ticket) => break ticket,
                    Err(Failure::Wait(Error::WouldBlock)) => yield_now(),
                    Err(other) => panic!("{other:?}"),
                }
            };
            loop {
                match caller.wait(&g, &mut ticket, NOW) {
                    Ok(answer) => {
                        assert_eq!(answer, [number + 10; 2]);
                        break;
                    }
                    Err(Failure::Wait(Error::WouldBlock)) => yield_now(),
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
        host.join().unwrap();
    });
}

/// A caller gives its first call up, and calls again by the same ticket: the late answer is never
/// that of the second call.
///
/// Fails if an answer's tag does not depend on its request's number, or if `Answers::store` does
/// not ask whether the answer is expected.
#[test]
fn a_late_answer_is_nobodys() {
    let memory = TestCalls::new(1, 1, 8, 8);
    model(2, move || {
        memory.clear();
        let host = thread::spawn(move || {
            let (mut requests, mut answers) = (memory.requests(), memory.answers(0));
            let (mut request, mut taken) = (Request::empty(), Vec::new());
            while taken.len() < 2 {
                if requests.take(&mut request) == Taken::Request {
                    answers.expect(request.from());
                    taken.push(request.from());
                } else {
                    yield_now();
                }
            }
            // The second's function is faster.
            answers.answer(taken[1], &[2_u32; 2]).unwrap();
            answers.answer(taken[0], &[1_u32; 2]).unwrap_err();
        });
        let (g, mut caller) = memory.caller(0);
        let first = caller.start(&g, ECHO, [1; 2], NOW).unwrap();
        caller.give_up(first);
        let mut second = loop {
            match caller.start(&g, ECHO, [2; 2], NOW) {
                Ok(ticket) => break ticket,
                Err(Failure::Wait(Error::WouldBlock)) => yield_now(),
                Err(other) => panic!("{other:?}"),
            }
        };
        match caller.wait(&g, &mut second, NOW) {
            Ok(answer) => assert_eq!(answer, [2; 2]),
            Err(error) => assert_eq!(error, Failure::Wait(Error::WouldBlock)),
        }
        host.join().unwrap();
        assert!(second.is_done() || caller.wait(&g, &mut second, NOW) == Ok([2; 2]));
    });
}

/// Two groups have one channel, one after the other: no request of either is lost or changed.
///
/// Fails if `take_channel` does not acquire, or `close` does not release; or if two callers take
/// the same channel.
#[test]
fn a_channel_goes_from_one_group_to_the_next() {
    let memory = TestCalls::new(1, 2, 8, 8);
    model(2, move || {
        memory.clear();
        let call = move |index: u32| {
            let (g, mut caller) = memory.caller(index);
            let told = caller.tell(&g, ECHO, [index; 2], NOW);
            caller.close(&g);
            match told {
                Ok(()) => 1,
                Err(failure) => {
                    assert_eq!(failure, Failure::NoChannel);
                    0
                }
            }
        };
        let other = thread::spawn(move || call(1));
        let told = call(0) + other.join().unwrap();
        let (mut requests, mut request) = (memory.requests(), Request::empty());
        let mut found = 0;
        while requests.take(&mut request) == Taken::Request {
            let [a, b] = request.value(ECHO).unwrap();
            assert_eq!(a, b);
            found += 1;
        }
        assert_eq!(found, told);
    });
}
