//! The functions, found by name at run time.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::os::unix;

use super::super::error::Unavailable;
use super::types::*;

struct SharedObject {
    name: &'static str,
    object: ManuallyDrop<unix::Library>,
}

impl SharedObject {
    fn open(name: &'static str, package: &'static str) -> Result<Self, Unavailable> {
        // SAFETY: the library's initialisers are those of a system library.
        let opened = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_LOCAL) };
        // Never closed: its functions live as long as the process.
        opened.map(|object| Self { name, object: ManuallyDrop::new(object) }).map_err(|error| {
            let reason = match error {
                libloading::Error::DlOpen { source } => source.to_string(),
                _ => "no reason given".to_owned(),
            };
            Unavailable::Library { name, package, reason }
        })
    }
}

macro_rules! functions {
    (
        $($library:ident {
            $($name:ident = $symbol:literal ($($argument:ty),*) $(-> $result:ty)?;)*
        })*
        $(; optional $late_library:ident {
            $($late:ident = $late_symbol:literal ($($late_argument:ty),*) -> $late_result:ty;)*
        })*
    ) => {
        /// The functions of both libraries. An optional one is `None` where the library is older
        /// than it.
        pub struct Library {
            $($(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
            $($(pub $late: Option<unsafe extern "C" fn($($late_argument),*) -> $late_result>,)*)*
        }

        impl Library {
            fn look_up(verbs: &SharedObject, cm: &SharedObject) -> Result<Self, Unavailable> {
                let by_name = Sources { verbs, cm };
                Ok(Self {
                    // SAFETY: the symbol is the library's function of that name, whose C signature
                    // is the one declared (the ABI of this soname does not change). Of a versioned
                    // symbol it is the default version.
                    $($($name: unsafe { by_name.$library.object.get($symbol) }
                        .ok()
                        .and_then(|found| *found)
                        .ok_or(Unavailable::Symbol {
                            symbol: $symbol.to_str().unwrap_or("(unnamed)"),
                            library: by_name.$library.name,
                        })?,)*)*
                    // SAFETY: as above.
                    $($($late: unsafe { by_name.$late_library.object.get($late_symbol) }
                        .ok()
                        .and_then(|found| *found),)*)*
                })
            }
        }
    };
}

struct Sources<'a> {
    verbs: &'a SharedObject,
    cm: &'a SharedObject,
}

functions! {
    verbs {
        get_device_list = c"ibv_get_device_list"(*mut c_int) -> *mut *mut Device;
        free_device_list = c"ibv_free_device_list"(*mut *mut Device);
        open_device = c"ibv_open_device"(*mut Device) -> *mut Context;
        close_device = c"ibv_close_device"(*mut Context) -> c_int;
        query_device = c"ibv_query_device"(*mut Context, *mut DeviceAttr) -> c_int;
        query_port = c"ibv_query_port"(*mut Context, u8, *mut PortAttr) -> c_int;
        alloc_pd = c"ibv_alloc_pd"(*mut Context) -> *mut Pd;
        dealloc_pd = c"ibv_dealloc_pd"(*mut Pd) -> c_int;
        reg_mr = c"ibv_reg_mr"(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
        dereg_mr = c"ibv_dereg_mr"(*mut Mr) -> c_int;
        create_comp_channel = c"ibv_create_comp_channel"(*mut Context) -> *mut CompChannel;
        destroy_comp_channel = c"ibv_destroy_comp_channel"(*mut CompChannel) -> c_int;
        create_cq = c"ibv_create_cq"(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
        destroy_cq = c"ibv_destroy_cq"(*mut Cq) -> c_int;
        get_cq_event = c"ibv_get_cq_event"(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
        ack_cq_events = c"ibv_ack_cq_events"(*mut Cq, c_uint);
        modify_qp = c"ibv_modify_qp"(*mut Qp, *mut QpAttr, c_int) -> c_int;
    }
    cm {
        create_event_channel = c"rdma_create_event_channel"() -> *mut EventChannel;
        destroy_event_channel = c"rdma_destroy_event_channel"(*mut EventChannel);
        create_id = c"rdma_create_id"(*mut EventChannel, *mut *mut CmId, *mut c_void, c_uint) -> c_int;
        destroy_id = c"rdma_destroy_id"(*mut CmId) -> c_int;
        migrate_id = c"rdma_migrate_id"(*mut CmId, *mut EventChannel) -> c_int;
        set_option = c"rdma_set_option"(*mut CmId, c_int, c_int, *mut c_void, usize) -> c_int;
        bind_addr = c"rdma_bind_addr"(*mut CmId, *mut libc::sockaddr) -> c_int;
        listen = c"rdma_listen"(*mut CmId, c_int) -> c_int;
        resolve_addr = c"rdma_resolve_addr"(*mut CmId, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        resolve_route = c"rdma_resolve_route"(*mut CmId, c_int) -> c_int;
        create_qp = c"rdma_create_qp"(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
        destroy_qp = c"rdma_destroy_qp"(*mut CmId);
        connect = c"rdma_connect"(*mut CmId, *mut ConnParam) -> c_int;
        accept = c"rdma_accept"(*mut CmId, *mut ConnParam) -> c_int;
        reject = c"rdma_reject"(*mut CmId, *const c_void, u8) -> c_int;
        disconnect = c"rdma_disconnect"(*mut CmId) -> c_int;
        get_cm_event = c"rdma_get_cm_event"(*mut EventChannel, *mut *mut CmEvent) -> c_int;
        ack_cm_event = c"rdma_ack_cm_event"(*mut CmEvent) -> c_int;
    }
    ; optional verbs {
        // rdma-core 34
        reg_dmabuf_mr = c"ibv_reg_dmabuf_mr"(*mut Pd, u64, usize, u64, c_int, c_int) -> *mut Mr;
    }
    ; optional cm {
        // rdma-core 23
        init_qp_attr = c"rdma_init_qp_attr"(*mut CmId, *mut QpAttr, *mut c_int) -> c_int;
    }
}

impl Library {
    /// Opens both libraries; later calls return the same. After a failure the next call tries
    /// again.
    pub fn load() -> Result<&'static Self, Unavailable> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        // The lock guards no data, so a panic under it left nothing half done.
        let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let verbs = SharedObject::open("libibverbs.so.1", "libibverbs1")?;
        let cm = SharedObject::open("librdmacm.so.1", "librdmacm1")?;
        let library = Self::look_up(&verbs, &cm)?;
        Ok(LOADED.get_or_init(|| library))
    }
}
