//! One stream, by the bytes of a call.

use super::{Plan, flow_row, span};
use crate::measure::Run;
use crate::outcome::Outcome;
use crate::pair::{BlockShape, EndpointKind, Flow, Pair, Transport, Work};
use crate::report::{Axis, Role, Row};
use gpunet_app::cli::spell;
use std::net::IpAddr;

/// Records a table of one pair, together with `floor`, the bare copies of one block, and with two
/// plain programs that block.
pub fn table(
    run: &mut Run<'_>,
    pair: &mut Pair,
    plan: &Plan,
    shape: BlockShape,
    floor: Option<Row>,
    (transport, address, apart): (Transport, IpAddr, bool),
) -> Outcome<()> {
    let sizes: Vec<u64> = run.effort.of(
        vec![64 << 10, 1 << 20],
        vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20],
        (9..=24).map(|log2| 1 << log2).collect(),
    );
    let title = format!("{}, {}, one stream by size", pair.title(apart), transport.name());
    let mut setting = pair.settings(shape, apart);
    setting.push(("rings", spell(plan.ring)));
    run.recorder.table("bandwidth", title, Axis::RateBySize, setting, 3 * sizes.len())?;
    if let Some(floor) = floor {
        // Bare copies do not depend on the size of a call.
        for &size in &sizes {
            let name = format!("{} a call, {}", spell(size), floor.name);
            run.recorder.row(Row { name, ..floor.clone() }.at("floor: bare copies", size));
        }
    }
    let plain = match transport {
        Transport::Tcp => Some(EndpointKind::Tcp { spin: false }),
        Transport::Peer if !pair.is_gpu() => Some(EndpointKind::Unix { spin: false }),
        _ => None,
    };
    if let Some(kind) = plain {
        let mut programs = Pair::plain([kind; 2], address)?;
        for &size in &sizes {
            let flow = flow(plan, size);
            let [servers, _] = programs.play(&Work::Flow(flow), BlockShape::ONE)?;
            let name = format!("{} a call, two programs, {}, blocking", spell(size), kind.name());
            let row = Row::rate(Role::Reference, name, flow.bytes, span(&servers));
            run.recorder.row(row.at(format!("{}, blocking", kind.name()), size));
        }
    }
    for &size in &sizes {
        let row = flow_row(pair, flow(plan, size), shape, "")?;
        run.recorder.row(row.at("gpunet", size));
    }
    Ok(())
}

/// One stream, with fewer bytes in total where a call has few.
fn flow(plan: &Plan, size: u64) -> Flow {
    Flow { message: size, bytes: plan.bytes(1, size), ..plan.flow() }
}
