//! The enumerations of the headers, as plain numbers: what a library newer than this may return.

pub const NODE_RNIC: i32 = 4;
pub const TRANSPORT_IB: i32 = 0;
pub const TRANSPORT_IWARP: i32 = 1;

pub const PORT_DOWN: u32 = 1;
pub const PORT_INIT: u32 = 2;
pub const PORT_ARMED: u32 = 3;
pub const PORT_ACTIVE: u32 = 4;
pub const LINK_LAYER_INFINIBAND: u8 = 1;
pub const LINK_LAYER_ETHERNET: u8 = 2;

pub const ACCESS_LOCAL_WRITE: u32 = 1;
pub const ACCESS_REMOTE_WRITE: u32 = 2;

pub const QPT_RC: u32 = 2;
pub const QPS_RTR: u32 = 2;
pub const QPS_ERR: u32 = 6;
pub const QP_STATE: u32 = 1;
pub const QP_MIN_RNR_TIMER: u32 = 1 << 15;

pub const WR_RDMA_WRITE: u32 = 0;
pub const WR_RDMA_WRITE_WITH_IMM: u32 = 1;
pub const WR_SEND: u32 = 2;
pub const SEND_INLINE: u32 = 8;

pub const WC_SUCCESS: u32 = 0;
pub const WC_WR_FLUSH_ERR: u32 = 5;
pub const WC_REM_INV_REQ_ERR: u32 = 9;
pub const WC_REM_ACCESS_ERR: u32 = 10;
pub const WC_REM_OP_ERR: u32 = 11;
pub const WC_RETRY_EXC_ERR: u32 = 12;
pub const WC_RNR_RETRY_EXC_ERR: u32 = 13;
pub const WC_WITH_IMM: u32 = 2;

pub const PS_TCP: u32 = 0x0106;
pub const OPTION_ID: i32 = 0;
pub const OPTION_ID_REUSEADDR: i32 = 1;
pub const OPTION_ID_ACK_TIMEOUT: i32 = 3;

pub const EVENT_ADDR_RESOLVED: u32 = 0;
pub const EVENT_ADDR_ERROR: u32 = 1;
pub const EVENT_ROUTE_RESOLVED: u32 = 2;
pub const EVENT_ROUTE_ERROR: u32 = 3;
pub const EVENT_CONNECT_REQUEST: u32 = 4;
pub const EVENT_CONNECT_RESPONSE: u32 = 5;
pub const EVENT_CONNECT_ERROR: u32 = 6;
pub const EVENT_UNREACHABLE: u32 = 7;
pub const EVENT_REJECTED: u32 = 8;
pub const EVENT_ESTABLISHED: u32 = 9;
pub const EVENT_DISCONNECTED: u32 = 10;
pub const EVENT_DEVICE_REMOVAL: u32 = 11;
pub const EVENT_TIMEWAIT_EXIT: u32 = 15;
