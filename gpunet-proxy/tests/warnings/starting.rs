//! A start with too few file descriptors: an error that says so, whatever it is that gets none.

use crate::descriptors::as_a_process;
use crate::support::{bounded, small};
use gpunet_proxy::{Host, Proxy, embed};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_start_without_descriptors() {
    as_a_process("starting::a_process_with_few_descriptors");
}

#[test]
#[ignore = "a part of `a_start_without_descriptors`, which runs it as a process of its own"]
fn a_process_with_few_descriptors() {
    bounded(|| {
        let limit = getrlimit(Resource::Nofile);
        // Upwards: what tokio keeps for the whole process must be missing first.
        let (mut refused, mut served) = (0, false);
        for few in 0..64 {
            setrlimit(Resource::Nofile, Rlimit { current: Some(few), ..limit }).expect("a lower limit");
            match start() {
                Ok(_) => served = true,
                Err(said) => {
                    assert!(said.contains("ulimit -n"), "with {few}: {said}");
                    refused += 1;
                }
            }
        }
        assert!(served && refused > 8, "{refused} refused");
    });
}

/// A proxy and the sockets of a host program.
fn start() -> Result<(Proxy, Host), String> {
    let proxy = embed(small()).map_err(|error| error.to_string())?;
    let host = proxy.host().map_err(|error| error.to_string())?;
    Ok((proxy, host))
}
