//! What utils/fuzz reaches of the private parts (`--cfg fuzzing`).

use crate::wire::{
    Frame, Hello, Packet, ToDaemon, ToProgram, decode, decode_first, encode, from_handles, handles,
};
use std::os::fd::OwnedFd;

/// Reads a packet that anybody can have sent. Its first two bytes say which frame is expected, and
/// how many descriptors came with it.
///
/// # Panics
/// When a frame that was read would not be read again as the same frame.
pub fn read_packet(packet: &[u8]) {
    let Some((&[expected, descriptors], bytes)) = packet.split_first_chunk::<2>() else { return };
    let packet = Packet { bytes: bytes.to_vec(), fds: some_descriptors(descriptors % 20), lost: false };
    match expected % 4 {
        0 => again(decode_first::<Hello>(packet).ok().map(|(frame, _)| frame)),
        1 => again(decode_first::<ToProgram>(packet).ok().map(|(frame, _)| frame)),
        2 => again(decode::<ToDaemon>(packet).ok().map(|(frame, _)| {
            if let ToDaemon::Release { handles: raw } | ToDaemon::FinishLaunch { fresh: raw, .. } = &frame {
                let valid = from_handles(raw);
                assert_eq!(from_handles(&handles(&valid)), valid);
            }
            frame
        })),
        _ => {
            let Ok((frame, fds)) = decode::<ToProgram>(packet) else { return };
            if let ToProgram::Agent(request) = frame {
                let _ = request.request(fds);
            } else {
                again(Some(frame));
            }
        }
    }
}

fn again<F: Frame>(frame: Option<F>) {
    let Some(frame) = frame else { return };
    let bytes = encode(&frame);
    let fds = some_descriptors(frame.descriptors() as u8);
    let (same, _) = decode::<F>(Packet { bytes: bytes.clone(), fds, lost: false })
        .expect("what was read can be read again");
    assert_eq!(encode(&same), bytes);
}

fn some_descriptors(count: u8) -> Vec<OwnedFd> {
    let null = || std::fs::File::open("/dev/null").expect("/dev/null").into();
    (0..count).map(|_| null()).collect()
}
