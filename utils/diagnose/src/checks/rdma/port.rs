//! Each port of an RDMA device.

use crate::check::Check;
use crate::checks::no_system;
use crate::facts::{CardFacts, PortFacts};
use crate::libraries::{Card, Libraries, NoAnswer, SystemAnswer};

/// Packets on a wire that is set up for RDMA.
const MTU: u32 = 4096;
/// An Ethernet MTU that holds such a packet and its headers.
const ETHERNET: u64 = 4200;

/// `serves`: some port of the machine is active, so that one without a cable may be meant to be so.
pub fn checks(card: &CardFacts, libraries: &Libraries, serves: bool) -> Vec<Check> {
    let of = |port: &PortFacts| {
        let subject = format!("{} port {}", card.name, port.number);
        let checks = if port.is_active() {
            vec![
                state(port),
                gids(port, card.iwarp),
                mtu(card, port, libraries.cards()),
                address(port, &libraries.system),
            ]
        } else if serves {
            vec![state(port).harmless()]
        } else {
            vec![state(port)]
        };
        checks.into_iter().map(move |check| check.on(subject.clone())).collect::<Vec<_>>()
    };
    if card.ports.is_empty() {
        let why = "/sys/class/infiniband shows no port";
        return vec![Check::unknown("rdma.port", why, "mount /sys").on(card.name.clone())];
    }
    card.ports.iter().flat_map(of).collect()
}

fn state(port: &PortFacts) -> Check {
    const ID: &str = "rdma.port";
    let text = format!("{}, {}, {}, {}", port.state, port.physical, port.link_layer, port.rate);
    if port.state.is_empty() {
        return Check::unknown(ID, "its state cannot be read", "mount /sys");
    }
    if port.is_active() {
        return Check::ok(ID, text);
    }
    let advice = if port.state.contains("INIT") && !port.is_ethernet() {
        "the link is up and nobody configures it: start a subnet manager (opensm), on a host or in the switch"
    } else if port.is_ethernet() {
        "ip link set up on its network interface (as root); look at cable and switch"
    } else {
        "look at the cable, the switch and the card's other port"
    };
    Check::missing(ID, text, advice)
}

fn gids(port: &PortFacts, iwarp: bool) -> Check {
    const ID: &str = "rdma.gids";
    let Some((first, kind)) = port.gids.first() else {
        return Check::missing(ID, "none", "give its network interface an address; ip link set up (as root)");
    };
    let text = format!("{}, the first {first} {kind}", port.gids.len());
    let old = port.is_ethernet() && !iwarp && port.gids.iter().all(|(_, kind)| kind.contains("RoCE v1"));
    if old {
        let advice =
            "give its network interface an IP address: RoCE v1 does not cross routers, and rdma_cm wants v2";
        return Check::degraded(ID, format!("{text}; RoCE v1 only"), advice);
    }
    Check::ok(ID, text)
}

fn mtu(card: &CardFacts, port: &PortFacts, known: &[Card]) -> Check {
    const ID: &str = "rdma.mtu";
    if card.iwarp {
        // TCP's segments carry it.
        return Check::ok(ID, "iWARP has the packets of TCP");
    }
    let known = known.iter().find(|one| one.name == card.name);
    let known =
        known.and_then(|one| one.ports.as_ref().ok()?.iter().find(|p| u32::from(p.number) == port.number));
    let interface = port.interfaces.iter().find_map(|(name, mtu)| Some((name, (*mtu)?)));
    let interface_text = interface
        .map(|(name, mtu)| format!("; {name} has {mtu}"))
        .filter(|_| port.is_ethernet())
        .unwrap_or_default();
    let advice = "ip link set mtu 9000 on its network interface, the switch and all peers (as root); on InfiniBand, in \
                  the subnet manager";
    match (known.and_then(|port| port.mtu), interface) {
        (Some(mtu), _) if mtu >= MTU => Check::ok(ID, format!("{mtu} bytes{interface_text}")),
        (Some(mtu), _) => Check::degraded(ID, format!("{mtu} bytes of {MTU}{interface_text}"), advice),
        (None, Some((name, mtu))) if port.is_ethernet() && mtu < ETHERNET => {
            Check::degraded(ID, format!("{name} has {mtu}, {ETHERNET} hold packets of {MTU}"), advice)
        }
        (None, Some((name, mtu))) if port.is_ethernet() => Check::ok(ID, format!("{name} has {mtu}")),
        (None, _) => Check::unknown(ID, "the card was not asked", "see rdma.provider"),
    }
}

fn address(port: &PortFacts, system: &Result<SystemAnswer, NoAnswer>) -> Check {
    const ID: &str = "rdma.address";
    let system = match system {
        Ok(system) => system,
        Err(why) => return no_system(ID, why),
    };
    let mine = |name: &String| port.interfaces.iter().any(|(interface, _)| interface == name);
    let found: Vec<String> = system
        .addresses
        .iter()
        .filter(|(name, _)| mine(name))
        .map(|(name, address)| format!("{address} ({name})"))
        .collect();
    if found.is_empty() {
        let names: Vec<_> = port.interfaces.iter().map(|(name, _)| name.as_str()).collect();
        let of = if names.is_empty() { "no network interface".to_owned() } else { names.join(", ") };
        return Check::missing(
            ID,
            format!("none ({of}): rdma_cm finds no route to it"),
            "ip addr add ADDRESS dev INTERFACE (as root); on InfiniBand load ib_ipoib",
        );
    }
    Check::ok(ID, found.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Impact, Status};
    use crate::libraries::{Port, nothing};

    fn active() -> PortFacts {
        PortFacts {
            number: 1,
            state: "4: ACTIVE".into(),
            physical: "5: LinkUp".into(),
            link_layer: "Ethernet".into(),
            rate: "400 Gb/sec (4X NDR)".into(),
            gids: vec![("fe80::1".into(), "RoCE v2".into())],
            interfaces: vec![("eth1".into(), Some(1500))],
        }
    }

    #[test]
    fn a_port_that_waits_for_a_subnet_manager_is_told_from_a_pulled_cable() {
        let port = |state: &str, link_layer: &str| {
            let port = PortFacts { state: state.into(), link_layer: link_layer.into(), ..active() };
            super::state(&port).advice.unwrap_or_default()
        };
        assert!(port("2: INIT", "InfiniBand").contains("subnet manager"));
        assert!(port("1: DOWN", "InfiniBand").contains("cable"));
        assert!(port("1: DOWN", "Ethernet").contains("ip link set up"));
        assert_eq!(state(&active()).status, Status::Ok);
    }

    #[test]
    fn a_port_that_is_down_is_asked_nothing_more() {
        let down = PortFacts { state: "1: DOWN".into(), ..active() };
        let card = CardFacts { name: "mlx5_0".into(), ports: vec![active(), down], ..CardFacts::default() };
        let checks = |serves| super::checks(&card, &nothing(), serves);
        assert_eq!(checks(true).len(), 4 + 1);
        assert_eq!(checks(true)[4].impact, Impact::Nothing, "another port serves");
        assert_eq!(checks(false)[4].impact, Impact::Costs);
    }

    #[test]
    fn gids_and_packet_sizes_have_bad_cases() {
        let v1 = PortFacts { gids: vec![("fe80::1".into(), "IB/RoCE v1".into())], ..active() };
        assert_eq!(gids(&v1, false).status, Status::Degraded);
        assert_eq!(gids(&v1, true).status, Status::Ok, "iWARP knows no versions");
        assert_eq!(gids(&PortFacts { gids: Vec::new(), ..active() }, false).status, Status::Missing);
        let card = CardFacts { name: "mlx5_0".into(), ..CardFacts::default() };
        assert_eq!(mtu(&card, &active(), &[]).status, Status::Degraded);
        let with = |mtu| Card {
            name: "mlx5_0".into(),
            transport: "InfiniBand".into(),
            dmabuf_call: true,
            ports: Ok(vec![Port { number: 1, mtu: Some(mtu), ..Port::default() }]),
        };
        assert_eq!(mtu(&card, &active(), &[with(4096)]).status, Status::Ok);
        assert_eq!(mtu(&card, &active(), &[with(1024)]).status, Status::Degraded);
    }

    #[test]
    fn a_port_needs_an_address() {
        let mut system = nothing().system;
        assert_eq!(address(&active(), &system).status, Status::Missing);
        let interfaces = vec![("eth1".to_owned(), "10.1.0.2".parse().expect("an address"))];
        system.as_mut().expect("asked").addresses = interfaces;
        assert_eq!(address(&active(), &system).status, Status::Ok);
        let none = Err(NoAnswer::NotAsked("not asked".into()));
        assert_eq!(address(&active(), &none).status, Status::Unknown);
    }
}
