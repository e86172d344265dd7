//! Signs of life, with clocks that jump: asked for exactly when nothing else proves that the peer's
//! host lives.

use crate::shape::Shape;
use crate::size::Size;
use crate::transfer::{shape, size};
use gpunet_core::rc::{Config, Failure, Machine};
use gpunet_core::verbs::{Op, Source};
use proptest::prelude::*;

const PROBE: Op = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None };

fn machine(size: &Size, shape: Shape, keepalive: u64) -> Machine {
    Machine::new(&Config { keepalive, ..size.config(0) }, shape.hello(1), 0)
}

proptest! {
    #[test]
    fn life_is_asked_for_when_due_and_only_then(
        size in size(), shape in shape(), period in 1u64..1000,
        steps in prop::collection::vec(any::<(u8, u16)>(), 0..200),
    ) {
        let mut machine = machine(&size, shape, period);
        let (mut now, mut alive, mut under_way) = (0, 0, 0u32);
        for (what, how) in steps {
            match what % 5 {
                0 | 1 => now += u64::from(how) % (2 * period),
                // An update that changes nothing.
                2 if under_way == 0 => {
                    let message = 4 << 29 | (u32::from(shape.rq) + u32::from(how & 1) * 0x1_0000);
                    if machine.posted() == 0 {
                        machine.handle_message(message, None, now).unwrap();
                        alive = now;
                    }
                }
                3 if under_way > 0 => {
                    machine.handle_sent(now);
                    (alive, under_way) = (now, under_way - 1);
                }
                4 if how % 4 == 0 => machine.offer(machine.posted() + 1),
                _ => {}
            }
            let deadline = machine.deadline();
            prop_assert_eq!(deadline, (under_way == 0).then_some(alive + period));
            while let Some(op) = machine.poll(now) {
                if op == PROBE {
                    prop_assert!(deadline.is_some_and(|deadline| deadline <= now) && under_way == 0);
                }
                under_way += 1;
            }
            // Due while nothing is under way is impossible.
            prop_assert!(under_way > 0 || alive + period > now);
        }
    }
}

#[test]
fn a_host_that_does_not_answer_is_unreachable() {
    let size =
        Size { variant: gpunet_core::rc::Variant::Send, send_ring: 64, recv_ring: 64, sends: 4, receives: 4 };
    let mut machine = Machine::new(&Config { keepalive: 10, ..size.config(0) }, size.hello(1), 5);
    assert_eq!((machine.poll(14), machine.deadline()), (None, Some(15)));
    assert_eq!(machine.poll(15), Some(PROBE));
    machine.handle_send_failed(Failure::Unreachable);
    assert_eq!((machine.failure(), machine.deadline()), (Some(Failure::Unreachable), None));
    assert_eq!(machine.poll(100), None);
}

#[test]
fn nobody_asks_after_the_last_message() {
    let size = Size {
        variant: gpunet_core::rc::Variant::Immediate,
        send_ring: 64,
        recv_ring: 64,
        sends: 4,
        receives: 4,
    };
    for shut_first in [false, true] {
        let mut machine = Machine::new(&Config { keepalive: 10, ..size.config(0) }, size.hello(1), 0);
        if shut_first {
            machine.shutdown();
            assert!(machine.poll(0).is_some());
            machine.handle_message(0xe000_0002, Some(0), 0).unwrap();
        } else {
            machine.disconnect();
            assert!(machine.poll(0).is_some());
        }
        assert!(!machine.is_settled(), "it has not arrived");
        machine.handle_sent(0);
        assert!(machine.is_settled());
        assert_eq!((machine.poll(100), machine.deadline()), (None, None));
    }
}
