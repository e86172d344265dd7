//! The figure of the two regions in docs/design/protocol.md, against the sizes of the structures.

use gpunet_abi::Context;
use gpunet_abi::claim::Posted;
use gpunet_abi::control::{ControlSlot, Descriptor};
use gpunet_abi::entry::{Entry, OwnWords};
use gpunet_abi::layout::{DeviceHeader, LAUNCHES, SharedHeader, SocketLine};
use gpunet_abi::line;
use gpunet_abi::panic_record::PanicRecord;
use gpunet_abi::poll_group::{GroupWords, PollEntry};
use gpunet_abi::region::{REGIONS, Region};

#[test]
fn sizes_in_the_figure_are_those_of_the_structures() {
    let page = include_str!("../../../docs/design/protocol.md");
    // The parts of both regions: what stands between the bars.
    let cells: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.contains("shared region (0)"))
        .take_while(|line| !line.is_empty())
        .flat_map(|line| line.split('|'))
        .map(str::trim)
        .collect();
    let sizes: [(String, usize); 22] = [
        ("header".into(), size_of::<SharedHeader>()),
        ("header: taken, ended, relay".into(), size_of::<DeviceHeader>()),
        ("published[S]".into(), size_of::<u64>()),
        ("consumed[S]".into(), size_of::<u64>()),
        ("requests[C]".into(), size_of::<u64>()),
        ("abandons[C]".into(), size_of::<u64>()),
        ("control slots[C]".into(), size_of::<ControlSlot>()),
        ("lines[S]".into(), size_of::<SocketLine>()),
        ("accepted[S]".into(), size_of::<Descriptor>()),
        ("takers[S]".into(), size_of::<u64>()),
        ("watches[S]".into(), size_of::<u64>()),
        ("panic record".into(), size_of::<PanicRecord>()),
        ("message lines".into(), line::PER_PAGE as usize),
        (format!("contexts[{LAUNCHES}]"), size_of::<Context>()),
        ("claims[C]".into(), size_of::<u32>()),
        ("posted[C]".into(), size_of::<Posted>()),
        ("states[S]".into(), size_of::<u32>()),
        ("entries[S]: the socket table".into(), size_of::<Entry>()),
        ("own words[S]".into(), size_of::<OwnWords>()),
        ("polls[S]: sockets of groups".into(), size_of::<PollEntry>()),
        ("groups[S]: poll groups".into(), size_of::<GroupWords>()),
        (format!("regions[{REGIONS}]: where arenas are"), size_of::<Region>()),
    ];
    for (name, size) in sizes {
        let is_there = cells.iter().any(|cell| {
            cell.strip_prefix(name.as_str())
                .is_some_and(|rest| rest.split_whitespace().next() == Some(size.to_string().as_str()))
        });
        assert!(is_there, "the figure has no {name:?} of {size} bytes");
    }
}
