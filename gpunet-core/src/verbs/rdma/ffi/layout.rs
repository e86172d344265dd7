//! What this module believes of the C headers, as C expressions with their values.

use std::mem::offset_of;

use super::numbers as n;
use super::types::*;

/// Pairs of a C expression and the value it must have; see tests/verbs_layout.rs.
#[must_use]
pub fn layout() -> Vec<(&'static str, i64)> {
    let mut facts = sizes();
    facts.extend(offsets());
    facts.extend(numbers());
    facts
}

macro_rules! sizes {
    ($($c:literal = $type:ty),* $(,)?) => { vec![$((concat!("sizeof(struct ", $c, ")"), size_of::<$type>() as i64)),*] };
}

macro_rules! offsets {
    ($($c:literal $c_field:literal = $type:ty, $field:ident);* $(;)?) => {
        vec![$((concat!("offsetof(struct ", $c, ", ", $c_field, ")"), offset_of!($type, $field) as i64)),*]
    };
}

macro_rules! numbers {
    ($($c:literal = $number:expr),* $(,)?) => { vec![$(($c, i64::from($number))),*] };
}

fn sizes() -> Vec<(&'static str, i64)> {
    sizes! {
        "ibv_pd" = Pd, "ibv_mr" = Mr, "ibv_comp_channel" = CompChannel, "ibv_qp_cap" = QpCap,
        "ibv_qp_init_attr" = QpInitAttr, "ibv_qp_attr" = QpAttr, "ibv_sge" = Sge,
        "ibv_send_wr" = SendWr, "ibv_recv_wr" = RecvWr, "ibv_wc" = Wc, "ibv_device_attr" = DeviceAttr,
        "ibv_context_ops" = ContextOps, "rdma_event_channel" = EventChannel,
        "rdma_conn_param" = ConnParam, "rdma_cm_event" = CmEvent, "sockaddr_storage" = libc::sockaddr_storage,
    }
}

fn offsets() -> Vec<(&'static str, i64)> {
    offsets! {
        "ibv_device" "node_type" = Device, node_type;
        "ibv_device" "transport_type" = Device, transport_type;
        "ibv_device" "name" = Device, name;
        "ibv_device" "dev_name" = Device, dev_name;
        "ibv_context" "device" = Context, device;
        "ibv_context" "ops" = Context, ops;
        "ibv_context_ops" "poll_cq" = ContextOps, poll_cq;
        "ibv_context_ops" "req_notify_cq" = ContextOps, req_notify_cq;
        "ibv_context_ops" "post_send" = ContextOps, post_send;
        "ibv_context_ops" "post_recv" = ContextOps, post_recv;
        "ibv_mr" "lkey" = Mr, lkey;
        "ibv_mr" "rkey" = Mr, rkey;
        "ibv_comp_channel" "fd" = CompChannel, fd;
        "ibv_cq" "context" = Cq, context;
        "ibv_qp" "context" = Qp, context;
        "ibv_qp_init_attr" "send_cq" = QpInitAttr, send_cq;
        "ibv_qp_init_attr" "recv_cq" = QpInitAttr, recv_cq;
        "ibv_qp_init_attr" "cap" = QpInitAttr, cap;
        "ibv_qp_init_attr" "qp_type" = QpInitAttr, qp_type;
        "ibv_qp_init_attr" "sq_sig_all" = QpInitAttr, sq_sig_all;
        "ibv_qp_cap" "max_recv_sge" = QpCap, max_recv_sge;
        "ibv_qp_cap" "max_inline_data" = QpCap, max_inline_data;
        "ibv_qp_attr" "qp_state" = QpAttr, qp_state;
        "ibv_qp_attr" "cap" = QpAttr, cap;
        "ibv_qp_attr" "min_rnr_timer" = QpAttr, min_rnr_timer;
        "ibv_qp_attr" "timeout" = QpAttr, timeout;
        "ibv_sge" "length" = Sge, length;
        "ibv_sge" "lkey" = Sge, lkey;
        "ibv_send_wr" "next" = SendWr, next;
        "ibv_send_wr" "sg_list" = SendWr, sg_list;
        "ibv_send_wr" "num_sge" = SendWr, num_sge;
        "ibv_send_wr" "opcode" = SendWr, opcode;
        "ibv_send_wr" "send_flags" = SendWr, send_flags;
        "ibv_send_wr" "imm_data" = SendWr, imm_data;
        "ibv_send_wr" "wr.rdma.remote_addr" = SendWr, remote_addr;
        "ibv_send_wr" "wr.rdma.rkey" = SendWr, rkey;
        "ibv_recv_wr" "sg_list" = RecvWr, sg_list;
        "ibv_recv_wr" "num_sge" = RecvWr, num_sge;
        "ibv_wc" "status" = Wc, status;
        "ibv_wc" "opcode" = Wc, opcode;
        "ibv_wc" "byte_len" = Wc, byte_len;
        "ibv_wc" "imm_data" = Wc, imm_data;
        "ibv_wc" "wc_flags" = Wc, wc_flags;
        "ibv_device_attr" "max_qp_wr" = DeviceAttr, max_qp_wr;
        "ibv_device_attr" "phys_port_cnt" = DeviceAttr, phys_port_cnt;
        "ibv_port_attr" "state" = PortAttr, state;
        "ibv_port_attr" "link_layer" = PortAttr, link_layer;
        "ibv_port_attr" "port_cap_flags2" = PortAttr, port_cap_flags2;
        "rdma_event_channel" "fd" = EventChannel, fd;
        "rdma_cm_id" "verbs" = CmId, verbs;
        "rdma_cm_id" "channel" = CmId, channel;
        "rdma_cm_id" "qp" = CmId, qp;
        "rdma_cm_id" "route.addr.src_storage" = CmId, src_addr;
        "rdma_cm_id" "route.addr.dst_storage" = CmId, dst_addr;
        "rdma_conn_param" "private_data_len" = ConnParam, private_data_len;
        "rdma_conn_param" "responder_resources" = ConnParam, responder_resources;
        "rdma_conn_param" "initiator_depth" = ConnParam, initiator_depth;
        "rdma_conn_param" "flow_control" = ConnParam, flow_control;
        "rdma_conn_param" "retry_count" = ConnParam, retry_count;
        "rdma_conn_param" "rnr_retry_count" = ConnParam, rnr_retry_count;
        "rdma_conn_param" "qp_num" = ConnParam, qp_num;
        "rdma_cm_event" "id" = CmEvent, id;
        "rdma_cm_event" "listen_id" = CmEvent, listen_id;
        "rdma_cm_event" "event" = CmEvent, event;
        "rdma_cm_event" "status" = CmEvent, status;
        "rdma_cm_event" "param.conn" = CmEvent, conn;
    }
}

fn numbers() -> Vec<(&'static str, i64)> {
    let mut numbers = numbers! {
        "IBV_NODE_RNIC" = n::NODE_RNIC,
        "IBV_TRANSPORT_IB" = n::TRANSPORT_IB,
        "IBV_TRANSPORT_IWARP" = n::TRANSPORT_IWARP,
        "IBV_PORT_DOWN" = n::PORT_DOWN,
        "IBV_PORT_INIT" = n::PORT_INIT,
        "IBV_PORT_ARMED" = n::PORT_ARMED,
        "IBV_PORT_ACTIVE" = n::PORT_ACTIVE,
        "IBV_LINK_LAYER_INFINIBAND" = n::LINK_LAYER_INFINIBAND,
        "IBV_LINK_LAYER_ETHERNET" = n::LINK_LAYER_ETHERNET,
        "IBV_ACCESS_LOCAL_WRITE" = n::ACCESS_LOCAL_WRITE,
        "IBV_ACCESS_REMOTE_WRITE" = n::ACCESS_REMOTE_WRITE,
        "IBV_QPT_RC" = n::QPT_RC,
        "IBV_QPS_RTR" = n::QPS_RTR,
        "IBV_QPS_ERR" = n::QPS_ERR,
        "IBV_QP_STATE" = n::QP_STATE,
        "IBV_QP_MIN_RNR_TIMER" = n::QP_MIN_RNR_TIMER,
        "IBV_WR_RDMA_WRITE" = n::WR_RDMA_WRITE,
        "IBV_WR_RDMA_WRITE_WITH_IMM" = n::WR_RDMA_WRITE_WITH_IMM,
        "IBV_WR_SEND" = n::WR_SEND,
        "IBV_SEND_INLINE" = n::SEND_INLINE,
        "IBV_WC_SUCCESS" = n::WC_SUCCESS,
        "IBV_WC_WR_FLUSH_ERR" = n::WC_WR_FLUSH_ERR,
        "IBV_WC_REM_INV_REQ_ERR" = n::WC_REM_INV_REQ_ERR,
        "IBV_WC_REM_ACCESS_ERR" = n::WC_REM_ACCESS_ERR,
        "IBV_WC_REM_OP_ERR" = n::WC_REM_OP_ERR,
        "IBV_WC_RETRY_EXC_ERR" = n::WC_RETRY_EXC_ERR,
        "IBV_WC_RNR_RETRY_EXC_ERR" = n::WC_RNR_RETRY_EXC_ERR,
        "IBV_WC_WITH_IMM" = n::WC_WITH_IMM,
    };
    numbers.extend(numbers! {
        "RDMA_PS_TCP" = n::PS_TCP,
        "RDMA_OPTION_ID" = n::OPTION_ID,
        "RDMA_OPTION_ID_REUSEADDR" = n::OPTION_ID_REUSEADDR,
        "RDMA_OPTION_ID_ACK_TIMEOUT" = n::OPTION_ID_ACK_TIMEOUT,
        "RDMA_CM_EVENT_ADDR_RESOLVED" = n::EVENT_ADDR_RESOLVED,
        "RDMA_CM_EVENT_ADDR_ERROR" = n::EVENT_ADDR_ERROR,
        "RDMA_CM_EVENT_ROUTE_RESOLVED" = n::EVENT_ROUTE_RESOLVED,
        "RDMA_CM_EVENT_ROUTE_ERROR" = n::EVENT_ROUTE_ERROR,
        "RDMA_CM_EVENT_CONNECT_REQUEST" = n::EVENT_CONNECT_REQUEST,
        "RDMA_CM_EVENT_CONNECT_RESPONSE" = n::EVENT_CONNECT_RESPONSE,
        "RDMA_CM_EVENT_CONNECT_ERROR" = n::EVENT_CONNECT_ERROR,
        "RDMA_CM_EVENT_UNREACHABLE" = n::EVENT_UNREACHABLE,
        "RDMA_CM_EVENT_REJECTED" = n::EVENT_REJECTED,
        "RDMA_CM_EVENT_ESTABLISHED" = n::EVENT_ESTABLISHED,
        "RDMA_CM_EVENT_DISCONNECTED" = n::EVENT_DISCONNECTED,
        "RDMA_CM_EVENT_DEVICE_REMOVAL" = n::EVENT_DEVICE_REMOVAL,
        "RDMA_CM_EVENT_TIMEWAIT_EXIT" = n::EVENT_TIMEWAIT_EXIT,
    });
    numbers
}
