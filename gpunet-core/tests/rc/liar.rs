//! A peer that lies is found out, and never makes a machine panic or write where nothing was
//! granted.

use crate::transfer::{shape, size};
use crate::victim::Victim;
use gpunet_core::verbs::Sge;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn lies_end_the_connection_and_nothing_else(
        size in size(), shape in shape(), steps in prop::collection::vec(any::<(u8, u32)>(), 0..300),
    ) {
        Victim::new(size.config(0), shape.hello(1)).play(&steps);
    }

    #[test]
    fn garbage_is_no_reason_to_panic(
        size in size(), shape in shape(), steps in prop::collection::vec(any::<(u32, u32)>(), 0..100),
    ) {
        let mut machine = Victim::new(size.config(0), shape.hello(1)).machine;
        for (bits, how) in steps {
            _ = machine.handle_message(bits >> (how % 32), (how & 1 == 0).then_some(how), 0);
            _ = machine.handle_area(Sge { address: u64::from(how) << 32, rkey: bits, len: how });
            if how & 2 == 0 {
                machine.handle_sent(0);
            }
            machine.offer(u64::from(bits));
            machine.handle_consumed(machine.received());
            for _ in 0..how % 8 {
                _ = machine.poll(u64::from(how));
            }
        }
    }
}
