//! A client has its own memory and that of its pairs, and can name no other.

use crate::daemon::{Running, TempDir, gpunetd};
use crate::program::{self, PEER, memories, nobody, small};
use crate::support::SOLO;
use crate::support::pair::connect;
use gpunet_device::{Listener, SockAddr};
use gpunet_proxy::attach;
use std::collections::BTreeSet;

const THREADS: usize = 2;

fn inodes(list: &str) -> BTreeSet<u64> {
    let inode = |entry: &str| entry.split('=').next().and_then(|inode| inode.parse().ok());
    list.split(';').filter_map(inode).collect()
}

#[test]
fn a_client_gets_its_region_its_bells_and_its_arenas() {
    let Some(user) = nobody("a_client_gets_its_region_its_bells_and_its_arenas") else { return };
    let dir = TempDir::new();
    let file = dir.file("f.toml", "allow_users = [\"nobody\"]\n");
    let threads = THREADS.to_string();
    let daemon = Running::start(gpunetd(&dir).arg("--config").arg(file).args(["--threads", &threads]));
    // Two attachments of root that talk: a region each, and the two parts of an arena.
    let proxy = attach(&dir.join("d.sock"), small()).expect("root may");
    let all: Vec<_> = (0..2).map(|_| proxy.attach_cpu().expect("attached")).collect();
    let tokens: Vec<_> = all.iter().map(|one| one.token().expect("a number")).collect();
    let (net, other) = (tokens[0].net(), tokens[1].net());
    let home = SockAddr::v4([127, 0, 0, 1], 0);
    let listener = Listener::bind_with(&SOLO, net, home, PEER, 8).expect("a port");
    let addr = listener.local_addr();
    let _ends = connect(other, &listener, PEER);
    let of = |pid: &str| memories(pid).into_iter().map(|(inode, _)| inode).collect::<BTreeSet<u64>>();
    let roots = of("self");
    assert!(roots.len() >= 4, "{roots:?}");

    let mut program = program::start(&dir, "descriptors", Some(user), Some(addr));
    let region = inodes(&program.hear());
    assert_eq!(region.len(), 1, "its region");
    assert!(region.is_disjoint(&roots));
    // One for each data thread; the other wakes its own session's thread.
    assert_eq!(program.hear(), (THREADS + 1).to_string());
    let _theirs = listener.accept(&SOLO).expect("accepted");
    let with_arena = inodes(&program.hear());
    assert_eq!(program.hear(), (THREADS + 1).to_string());
    assert!(with_arena.is_superset(&region));
    let parts: BTreeSet<u64> = with_arena.difference(&region).copied().collect();
    assert_eq!(parts.len(), 2, "the two parts of its arena");
    // What both have is that arena, and nothing that root had before.
    assert!(parts.is_disjoint(&roots));
    let now = of("self");
    let shared: BTreeSet<u64> = with_arena.intersection(&now).copied().collect();
    assert_eq!(shared, parts);
    assert!(of(&daemon.child.id().to_string()).is_superset(&with_arena));
}
