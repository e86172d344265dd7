//! The frames between programs and daemons: no bytes cause a panic, and a decoded frame encodes to
//! the same bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| gpunet_proxy::fuzzing::read_packet(packet));
