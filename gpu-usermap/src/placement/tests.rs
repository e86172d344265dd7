//! Every combination of facts, against the rules said in another way; then the cases that machines
//! have.

use super::*;

const GPU: [Placement; 2] = [Placement::GpuDmaBuf, Placement::GpuPeerMem];

/// An H200 in a machine with a card and everything loaded.
fn best() -> Facts {
    Facts {
        gpu: Some(RdmaAttributes {
            gpu_direct: Some(true),
            gpu_direct_with_vmm: Some(true),
            dma_buf: Some(true),
            writes_ordering: Some(WritesOrdering::Owner),
            flush_options: Some(FlushOptions(1)),
        }),
        system: System {
            rdma_devices: vec!["mlx5_0".to_owned()],
            kernel: Some(KernelVersion { major: 6, minor: 8 }),
            peer_module: Some("/sys/module/nvidia_peermem".into()),
        },
        card_takes_dmabuf: None,
    }
}

fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = best();
    change(&mut facts);
    facts
}

fn gpu(change: impl FnOnce(&mut RdmaAttributes)) -> Facts {
    with(|facts| facts.gpu.as_mut().map(change).expect("a GPU"))
}

fn auto(facts: &Facts) -> Placement {
    choose(facts, PlacementChoice::Auto).expect("pinned memory always works")
}

#[test]
fn all_combinations_follow_the_rules() {
    let answers = [None, Some(false), Some(true)];
    let orderings = [
        None,
        Some(WritesOrdering::Nobody),
        Some(WritesOrdering::Owner),
        Some(WritesOrdering::AllDevices),
        Some(WritesOrdering::Unknown(50)),
    ];
    let kernels = [None, Some(KernelVersion { major: 5, minor: 11 }), Some(DMABUF_KERNEL)];
    let mut cases = 0;
    for case in 0..27 {
        let [direct, export, takes] = [case % 3, case / 3 % 3, case / 9].map(|answer| answers[answer]);
        for (ordering, kernel) in orderings.iter().flat_map(|&o| kernels.iter().map(move |&k| (o, k))) {
            for bits in 0..16 {
                let [has_gpu, has_card, module, flush] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
                let facts = Facts {
                    gpu: has_gpu.then_some(RdmaAttributes {
                        gpu_direct: direct,
                        gpu_direct_with_vmm: None,
                        dma_buf: export,
                        writes_ordering: ordering,
                        flush_options: Some(FlushOptions(i32::from(flush))),
                    }),
                    system: System {
                        rdma_devices: if has_card { vec!["mlx5_0".to_owned()] } else { vec![] },
                        kernel,
                        peer_module: module.then(|| "/sys/module/nvidia_peermem".into()),
                    },
                    card_takes_dmabuf: takes,
                };
                check(&facts, [direct, export, takes], [has_gpu && has_card, module, flush]);
                cases += 1;
            }
        }
    }
    assert_eq!(cases, 27 * 15 * 16);
}

fn check(facts: &Facts, [direct, export, takes]: [Option<bool>; 3], [both, module, flush]: [bool; 3]) {
    let ordering = facts.gpu.and_then(|gpu| gpu.writes_ordering);
    let ordered = matches!(ordering, Some(WritesOrdering::Owner | WritesOrdering::AllDevices));
    let new_enough = facts.system.kernel != Some(KernelVersion { major: 5, minor: 11 });
    let usable = both && (ordered || flush);
    let dmabuf = usable && export == Some(true) && takes != Some(false) && new_enough;
    let peer = usable && direct == Some(true) && module;

    assert_eq!(choose(facts, PlacementChoice::Only(Placement::GpuDmaBuf)).is_ok(), dmabuf, "{facts:?}");
    assert_eq!(choose(facts, PlacementChoice::Only(Placement::GpuPeerMem)).is_ok(), peer, "{facts:?}");
    assert_eq!(choose(facts, PlacementChoice::Only(Placement::Pinned)), Ok(Placement::Pinned));
    let expected = match (dmabuf && ordered, peer && ordered) {
        (true, _) => Placement::GpuDmaBuf,
        (false, true) => Placement::GpuPeerMem,
        (false, false) => Placement::Pinned,
    };
    assert_eq!(auto(facts), expected, "{facts:?}");
    for placement in GPU {
        if let Err(refused) = choose(facts, PlacementChoice::Only(placement)) {
            assert!(!refused.reasons.is_empty() && refused.placement == placement);
            assert!(!refused.reasons.contains(&Reason::NeedsFlush));
        }
        assert!(why_not(facts, placement).iter().all(|reason| !reason.to_string().is_empty()));
    }
    assert!(why_not(facts, Placement::Pinned).is_empty());
    assert_eq!(needs_flush(facts), facts.gpu.is_some() && !ordered);
}

#[test]
fn the_best_machine_uses_dmabufs() {
    assert_eq!(auto(&best()), Placement::GpuDmaBuf);
    assert!(!needs_flush(&best()));
}

#[test]
fn a_machine_without_a_card_uses_pinned_memory_and_says_so() {
    let facts = with(|facts| facts.system.rdma_devices.clear());
    assert_eq!(auto(&facts), Placement::Pinned);
    assert_eq!(why_not(&facts, Placement::GpuDmaBuf), [Reason::NoCard]);
    let refused = choose(&facts, PlacementChoice::Only(Placement::GpuDmaBuf)).expect_err("no card");
    assert_eq!(refused.to_string(), "GPU memory by dma-buf: no RDMA device (/sys/class/infiniband is empty)");
}

#[test]
fn a_machine_without_a_gpu_uses_pinned_memory() {
    let facts = with(|facts| facts.gpu = None);
    assert_eq!(auto(&facts), Placement::Pinned);
    assert!(GPU.iter().all(|&placement| why_not(&facts, placement) == [Reason::NoGpu]));
    assert!(!needs_flush(&facts));
}

#[test]
fn the_peer_module_serves_where_dmabufs_do_not() {
    assert_eq!(auto(&with(|facts| facts.card_takes_dmabuf = Some(false))), Placement::GpuPeerMem);
    assert_eq!(auto(&gpu(|gpu| gpu.dma_buf = Some(false))), Placement::GpuPeerMem);
    let old = with(|facts| facts.system.kernel = Some(KernelVersion { major: 4, minor: 18 }));
    assert_eq!(auto(&old), Placement::GpuPeerMem);
    assert!(
        choose(&old, PlacementChoice::Only(Placement::GpuDmaBuf))
            .expect_err("old")
            .to_string()
            .contains("Linux 4.18")
    );
}

#[test]
fn an_unordered_gpu_is_used_only_when_asked_for_and_only_with_a_flush() {
    let facts = gpu(|gpu| gpu.writes_ordering = Some(WritesOrdering::Nobody));
    assert_eq!(auto(&facts), Placement::Pinned);
    assert_eq!(why_not(&facts, Placement::GpuDmaBuf), [Reason::NeedsFlush]);
    assert_eq!(choose(&facts, PlacementChoice::Only(Placement::GpuDmaBuf)), Ok(Placement::GpuDmaBuf));
    assert!(needs_flush(&facts));

    let facts = gpu(|gpu| (gpu.writes_ordering, gpu.flush_options) = (None, Some(FlushOptions(2))));
    let refused = choose(&facts, PlacementChoice::Only(Placement::GpuPeerMem)).expect_err("unordered");
    assert_eq!(refused.reasons, [Reason::Unordered]);
}

#[test]
fn the_option_reads_its_words() {
    for (text, wanted) in [
        ("auto", PlacementChoice::Auto),
        ("dma-buf", PlacementChoice::Only(Placement::GpuDmaBuf)),
        ("peer-mem", PlacementChoice::Only(Placement::GpuPeerMem)),
        ("pinned", PlacementChoice::Only(Placement::Pinned)),
    ] {
        assert_eq!(text.parse(), Ok(wanted));
    }
    assert!("gpu".parse::<PlacementChoice>().expect_err("unknown").to_string().contains("pinned"));
}
