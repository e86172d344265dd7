//! Proxies: in this process, or a daemon.

use crate::failure::{Failure, done, int};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_proxy::{Config, Proxy, attach, embed, open, places};
use serde_json::json;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::Arc;

/// A proxy: the threads that serve devices, in this process or in a daemon. Any thread may use it.
pub struct gpunet_host_proxy_t(());

handles! { gpunet_host_proxy_t, PROXIES: Proxy, 1, "proxy" }

fn config(settings: *const c_char) -> Result<Config, Failure> {
    match memory::text(settings, "the settings")? {
        Some(text) => Ok(Config::from_toml(text)?),
        None => Ok(Config::default()),
    }
}

fn enter(proxy: Proxy, out: &Out<*mut gpunet_host_proxy_t>) -> Result<(), Failure> {
    out.put(gpunet_host_proxy_t::new(Arc::new(proxy))?);
    Ok(())
}

/// Starts a proxy in this process.
///
/// `settings` is TOML, one `key = value` a line; NULL means the defaults. The keys: sockets,
/// controls, shared_rings, device_rings (bytes), threads, cpus ("2-5,8"), spin_us, latency_us,
/// heartbeat_ms, linger_s, rc ("system", "off"), placement ("auto", "pinned", "dma-buf",
/// "peer-mem"), rc_peers (["192.0.2.1"]), rc_keepalive_ms. docs/operations.md explains them.
///
/// On success `*proxy` is a handle that gpunet_host_proxy_close ends. Errors: -EINVAL for settings,
/// with the line or the key and what is expected; the system's, when it refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_embed(
    settings: *const c_char,
    proxy: *mut *mut gpunet_host_proxy_t,
) -> c_int {
    done(|| {
        let out = Out::new(proxy, "proxy")?;
        enter(embed(config(settings)?)?, &out)
    })
}

/// Joins the daemon (gpunetd) that listens at `path`; NULL is where it listens by default. Of the
/// settings only sockets, controls, shared_rings, device_rings and placement are the program's; the
/// others are the daemon's. Waits for the daemon's answer.
///
/// On success `*proxy` is a handle that gpunet_host_proxy_close ends. Errors: -ENOENT or
/// -ECONNREFUSED when no daemon is there; -EACCES and others when it refuses; -EPROTONOSUPPORT when
/// it is of another version; -EINVAL for settings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_attach(
    path: *const c_char,
    settings: *const c_char,
    proxy: *mut *mut gpunet_host_proxy_t,
) -> c_int {
    done(|| {
        let out = Out::new(proxy, "proxy")?;
        let path = memory::text(path, "the path")?.map_or_else(places::daemon_path, Into::into);
        enter(attach(&path, config(settings)?)?, &out)
    })
}

/// Joins the daemon as gpunet_host_attach does if one listens there, else starts a proxy in this
/// process. gpunet_host_proxy_is_daemon tells which of the two happened.
///
/// Errors: as gpunet_host_attach and gpunet_host_embed. A daemon that refuses is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_open(
    path: *const c_char,
    settings: *const c_char,
    proxy: *mut *mut gpunet_host_proxy_t,
) -> c_int {
    done(|| {
        let out = Out::new(proxy, "proxy")?;
        let path = memory::text(path, "the path")?.map(Path::new);
        enter(open(path, config(settings)?)?, &out)
    })
}

/// Returns 1 for a daemon, 0 for a proxy in this process.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_proxy_is_daemon(proxy: *const gpunet_host_proxy_t) -> c_int {
    int(|| Ok(i64::from(gpunet_host_proxy_t::of(proxy)?.daemon().is_some())))
}

/// Describes the proxy as a JSON object: "data_threads", and "daemon", which is null or has "path",
/// "pid", "version", "heartbeat_ms" and "linger_ms".
///
/// On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
/// Errors: -EBADF, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_proxy_json(
    proxy: *const gpunet_host_proxy_t,
    json: *mut *mut c_char,
) -> c_int {
    done(|| {
        let out = Out::new(json, "json")?;
        let proxy = gpunet_host_proxy_t::of(proxy)?;
        let daemon = proxy.daemon().map(|daemon| {
            json!({
                "path": daemon.path,
                "pid": daemon.pid,
                "version": daemon.version,
                "heartbeat_ms": daemon.heartbeat.as_millis() as u64,
                "linger_ms": daemon.linger.as_millis() as u64,
            })
        });
        let threads = proxy.daemon().map(|daemon| daemon.data_threads as usize);
        let threads = threads.unwrap_or_else(|| proxy.config().thread_count());
        memory::put_text(&out, &json!({ "data_threads": threads, "daemon": daemon }).to_string())
    })
}

/// Describes what the proxy holds at this moment as a JSON object: totals, clients, sockets and
/// data threads, as `gpunetctl ss --json` prints them. A daemon shows what this user may see. Waits
/// for the control plane's answer.
///
/// On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
/// Errors: -EBADF; -ETIMEDOUT when the control plane does not answer; the system's, when a daemon
/// cannot be asked; -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_snapshot_json(
    proxy: *const gpunet_host_proxy_t,
    json: *mut *mut c_char,
) -> c_int {
    done(|| {
        let out = Out::new(json, "json")?;
        let snapshot = gpunet_host_proxy_t::of(proxy)?.snapshot()?;
        let text =
            serde_json::to_string(&snapshot).map_err(|error| Failure::new(libc::EIO, error.to_string()))?;
        memory::put_text(&out, &text)
    })
}

/// Stops the proxy at once, without delivering anything: every socket reports ENETDOWN, and calls
/// that wait return it. A daemon continues to run; to it this program seems to have been killed.
/// The handles stay open, to be closed.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_proxy_abort(proxy: *const gpunet_host_proxy_t) -> c_int {
    done(|| {
        gpunet_host_proxy_t::of(proxy)?.abort();
        Ok(())
    })
}

/// Closes the handle. A proxy in this process stops when its last attachment is closed too.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_proxy_close(proxy: *mut gpunet_host_proxy_t) -> c_int {
    done(|| gpunet_host_proxy_t::take(proxy).map(drop))
}
