//! Which RDMA devices there are, for people.

use std::fmt;
use std::io;
use std::ptr::NonNull;

use super::context::{is_iwarp, query, text};
use super::error::{Unavailable, check_code};
use super::ffi::numbers as n;
use super::ffi::{self, Library};

/// What is known of an RDMA device.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// The file through which programs use it.
    pub path: String,
    /// Its transport.
    pub transport: DeviceTransport,
    /// The kernel's node type: 1 a channel adapter, 4 an iWARP card.
    pub node_type: i32,
    /// iWARP: no RDMA write with immediate data.
    pub iwarp: bool,
    /// Its ports and limits, or why it does not open.
    pub opened: Result<OpenedReport, Unavailable>,
    /// libibverbs has ibv_reg_dmabuf_mr. Whether the device can do it shows only when it is tried.
    pub dmabuf_call: bool,
}

/// What an opened device reports.
#[derive(Clone, Debug)]
pub struct OpenedReport {
    /// Most work requests of a queue.
    pub max_depth: u32,
    /// Its ports, from number 1 on.
    pub ports: Vec<PortReport>,
}

/// A port of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortReport {
    /// Its number.
    pub number: u8,
    /// Whether it can be used.
    pub state: PortState,
    /// `InfiniBand`, `Ethernet`, or unknown.
    pub link_layer: LinkLayer,
    /// Bytes of a packet at most, of 256 to 4,096; `None` for a code that is not known.
    pub mtu: Option<u32>,
}

/// ibv_transport_type
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceTransport {
    /// InfiniBand, and RoCE, which is InfiniBand over Ethernet.
    InfiniBand,
    /// iWARP.
    Iwarp,
    /// Another, by its number.
    Other(i32),
}

/// ibv_port_state
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// A link, not yet configured.
    Init,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// Another, by its number.
    Other(u32),
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet.
    Ethernet,
    /// Another, by its number.
    Other(u8),
}

impl fmt::Display for DeviceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {:?}, node type {}", self.name, self.path, self.transport, self.node_type)?;
        if self.iwarp {
            write!(f, ", iWARP")?;
        }
        match &self.opened {
            Ok(opened) => {
                for port in &opened.ports {
                    write!(f, "; port {} {:?} ({:?})", port.number, port.state, port.link_layer)?;
                    if let Some(mtu) = port.mtu {
                        write!(f, ", MTU {mtu}")?;
                    }
                }
                write!(f, "; {} work requests a queue", opened.max_depth)?;
            }
            Err(why) => write!(f, "; {why}")?,
        }
        write!(f, "; ibv_reg_dmabuf_mr {}", if self.dmabuf_call { "present" } else { "missing" })
    }
}

/// Lists the devices. Finding none is an error.
pub(super) fn devices(library: &Library) -> Result<Vec<DeviceReport>, Unavailable> {
    let mut count = 0;
    // SAFETY: writes one int.
    let list = unsafe { (library.get_device_list)(&mut count) };
    if list.is_null() {
        let error = io::Error::last_os_error();
        return Err(Unavailable::from_call("ibv_get_device_list", "/dev/infiniband", &error));
    }
    let mut reports = Vec::new();
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: inside the list, whose entries are devices until it is freed.
        let device = unsafe { *list.add(at) };
        // SAFETY: as above.
        reports.push(unsafe { report(library, device) });
    }
    // SAFETY: got above, freed once; no device of it is used any more.
    unsafe { (library.free_device_list)(list) };
    if reports.is_empty() {
        return Err(Unavailable::NoDevice { reason: "ibv_get_device_list: the list is empty".to_owned() });
    }
    Ok(reports)
}

/// # Safety
/// `device` is in a list that has not been freed.
unsafe fn report(library: &Library, device: *mut ffi::Device) -> DeviceReport {
    // SAFETY: the caller's promise.
    let facts = unsafe { &*device };
    let path = format!("/dev/infiniband/{}", text(&facts.dev_name));
    // SAFETY: as above.
    let context = NonNull::new(unsafe { (library.open_device)(device) });
    let opened = match context {
        None => Err(Unavailable::from_call("ibv_open_device", &path, &io::Error::last_os_error())),
        Some(context) => {
            // SAFETY: open until the next line.
            let opened = unsafe { query_ports(library, context) };
            // SAFETY: opened above, closed once.
            unsafe { (library.close_device)(context.as_ptr()) };
            opened.map_err(|e| Unavailable::from_call("ibv_query_device", &path, &e))
        }
    };
    DeviceReport {
        name: text(&facts.name),
        path,
        transport: match facts.transport_type {
            n::TRANSPORT_IB => DeviceTransport::InfiniBand,
            n::TRANSPORT_IWARP => DeviceTransport::Iwarp,
            other => DeviceTransport::Other(other),
        },
        node_type: facts.node_type,
        iwarp: is_iwarp(facts),
        opened,
        dmabuf_call: library.reg_dmabuf_mr.is_some(),
    }
}

/// # Safety
/// The context is open.
unsafe fn query_ports(library: &Library, context: NonNull<ffi::Context>) -> io::Result<OpenedReport> {
    // SAFETY: the caller's promise.
    let attributes = unsafe { query(library, context) }?;
    let mut ports = Vec::new();
    for number in 1..=attributes.phys_port_cnt {
        let mut port = ffi::PortAttr::default();
        // SAFETY: an open context, and room for more than the call writes.
        check_code(unsafe { (library.query_port)(context.as_ptr(), number, &mut port) })?;
        let state = match port.state {
            n::PORT_DOWN => PortState::Down,
            n::PORT_INIT => PortState::Init,
            n::PORT_ARMED => PortState::Armed,
            n::PORT_ACTIVE => PortState::Active,
            other => PortState::Other(other),
        };
        let link_layer = match port.link_layer {
            n::LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            n::LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            other => LinkLayer::Other(other),
        };
        ports.push(PortReport { number, state, link_layer, mtu: mtu(port.active_mtu) });
    }
    Ok(OpenedReport { max_depth: attributes.max_qp_wr.unsigned_abs(), ports })
}

/// ibv_mtu: 1 is 256 bytes, 5 is 4,096.
fn mtu(code: u32) -> Option<u32> {
    (1..=5).contains(&code).then(|| 128 << code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_codes_are_powers_of_two_from_256() {
        assert_eq!([0, 1, 3, 5, 6].map(mtu), [None, Some(256), Some(1024), Some(4096), None]);
    }
}
