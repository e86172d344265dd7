//! What programs and daemons say to each other: no bytes panic, and what is read is said again in the same words.
#![no_main]

libfuzzer_sys::fuzz_target!(|packet: &[u8]| gpunet_proxy::fuzzing::read_packet(packet));
