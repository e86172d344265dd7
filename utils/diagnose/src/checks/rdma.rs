//! RDMA: libraries, devices, ports.

mod port;

use super::no_rdma;
use crate::check::Check;
use crate::facts::{CardFacts, Facts, PortFacts};
use crate::libraries::{Card, Rdma};

/// Checks of each device or port, for when there is none.
const EACH: [&str; 5] = ["rdma.provider", "rdma.port", "rdma.gids", "rdma.mtu", "rdma.address"];

pub fn checks(facts: &Facts) -> Vec<Check> {
    let rdma = &facts.libraries.rdma;
    let mut checks = match rdma {
        Err(why) => vec![no_rdma("rdma.libraries", why), devices(facts), no_rdma("rdma.cm", why)],
        Ok(rdma) => vec![loaded(rdma), devices(facts), cm(rdma, !facts.cards.is_empty())],
    };
    if facts.cards.is_empty() {
        checks.extend(
            EACH.iter().map(|id| Check::unknown(id, "no RDMA device to look at", "see rdma.devices")),
        );
        return checks;
    }
    let serves = facts.cards.iter().any(|card| card.ports.iter().any(PortFacts::is_active));
    for card in &facts.cards {
        checks.push(match rdma {
            Err(why) => no_rdma("rdma.provider", why).on(card.name.clone()),
            Ok(_) => provider(card, facts.libraries.cards()),
        });
        checks.extend(port::checks(card, &facts.libraries, serves));
    }
    checks
}

fn loaded(rdma: &Rdma) -> Check {
    const ID: &str = "rdma.libraries";
    match &rdma.verbs {
        Err(none) if !none.libraries => Check::missing(
            ID,
            none.why.clone(),
            "apt-get install libibverbs1 librdmacm1 ibverbs-providers (rdma-core on other systems)",
        ),
        _ => Check::ok(ID, "libibverbs.so.1 and librdmacm.so.1 load"),
    }
}

fn devices(facts: &Facts) -> Check {
    const ID: &str = "rdma.devices";
    if facts.cards.is_empty() {
        return Check::missing(
            ID,
            "none (/sys/class/infiniband is empty): no rc transport",
            "nothing to do if none was expected; else load the card's driver; in a container, give it \
             /dev/infiniband; a software device: rdma link add rxe0 type rxe netdev eth0 (as root)",
        );
    }
    let text = |card: &CardFacts| {
        let driver = card.driver.as_deref().unwrap_or("software");
        let firmware =
            card.firmware.as_deref().map(|version| format!(", firmware {version}")).unwrap_or_default();
        format!("{} ({driver}{firmware})", card.name)
    };
    Check::ok(ID, facts.cards.iter().map(text).collect::<Vec<_>>().join(", "))
}

fn cm(rdma: &Rdma, with_cards: bool) -> Check {
    const ID: &str = "rdma.cm";
    match &rdma.rdma_cm {
        Ok(()) => Check::ok(ID, "an event channel opens, and a device"),
        Err(why) if with_cards => Check::missing(
            ID,
            why.clone(),
            "modprobe rdma_ucm (as root), and let this user read and write /dev/infiniband/rdma_cm and uverbs*",
        ),
        Err(why) => Check::missing(ID, why.clone(), "see rdma.devices"),
    }
}

fn provider(card: &CardFacts, known: &[Card]) -> Check {
    const ID: &str = "rdma.provider";
    let driver = card.driver.as_deref().unwrap_or("software device");
    let check = match known.iter().find(|one| one.name == card.name) {
        None => Check::missing(
            ID,
            format!("libibverbs does not list it: no provider for {driver}"),
            "install the package ibverbs-providers (/etc/libibverbs.d names them), or MLNX_OFED/DOCA's of the \
             kernel driver's version",
        ),
        Some(one) => match &one.ports {
            Err(why) => {
                Check::missing(ID, why.clone(), "let this user read and write /dev/infiniband/uverbs*")
            }
            Ok(_) => {
                let dmabuf =
                    if one.dmabuf_call { "can register dma-bufs" } else { "cannot register dma-bufs" };
                let text = format!("{driver}, {}, opens; libibverbs {dmabuf}", one.transport);
                if one.dmabuf_call {
                    Check::ok(ID, text)
                } else {
                    Check::degraded(ID, text, "rdma-core 34 or later, for rings in GPU memory by dma-buf")
                }
            }
        },
    };
    check.on(card.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;
    use crate::libraries::{NoVerbs, nothing};

    fn card() -> CardFacts {
        CardFacts { name: "mlx5_0".into(), driver: Some("mlx5_core".into()), ..CardFacts::default() }
    }

    #[test]
    fn a_card_that_libibverbs_does_not_list_lacks_its_provider() {
        let check = provider(&card(), &[]);
        assert_eq!(check.status, Status::Missing);
        assert!(
            check.evidence.contains("mlx5_core") && check.subject.as_deref() == Some("mlx5_0"),
            "{check:?}"
        );
        let open = |dmabuf_call| Card {
            name: "mlx5_0".into(),
            transport: "InfiniBand".into(),
            dmabuf_call,
            ports: Ok(Vec::new()),
        };
        assert_eq!(provider(&card(), &[open(true)]).status, Status::Ok);
        assert_eq!(provider(&card(), &[open(false)]).status, Status::Degraded);
        let closed = Card { ports: Err("no permission".into()), ..open(true) };
        assert_eq!(provider(&card(), &[closed]).status, Status::Missing);
    }

    #[test]
    fn missing_libraries_are_told_from_missing_devices() {
        let mut rdma = nothing().rdma.expect("asked");
        assert_eq!(loaded(&rdma).status, Status::Missing);
        rdma.verbs = Err(NoVerbs { libraries: true, why: "no RDMA device".into() });
        assert_eq!(loaded(&rdma).status, Status::Ok);
    }

    #[test]
    fn without_a_card_nothing_of_it_is_ok() {
        let mut facts = crate::facts::none();
        facts.libraries = nothing();
        let checks = checks(&facts);
        assert_eq!(checks.len(), 3 + EACH.len());
        assert!(checks.iter().all(|check| !check.is_ok()), "{checks:?}");
    }
}
