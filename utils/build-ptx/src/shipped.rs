//! The kernels that the repository ships as checked-in PTX.

use std::path::{Path, PathBuf};

/// One kernel package of this workspace and the file its PTX is checked in as.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Package directory, relative to the workspace root.
    pub package: &'static str,
    /// Checked-in PTX, relative to the workspace root.
    pub output: &'static str,
    /// Cargo features turned on for this artefact, each only if the package declares it.
    pub features: &'static [&'static str],
}

/// Every shipped kernel.
pub const SHIPPED: &[Shipped] = &[
    // The C ABI lies behind a feature, because `no_mangle` items of a dependency land in every
    // kernel that uses it.
    Shipped {
        package: "gpunet-device/posix",
        output: "gpunet-device/ptx/gpunet_device.ptx",
        features: &["capi"],
    },
    Shipped {
        package: "apps/microbench/kernel",
        output: "apps/microbench/ptx/gpunet_bench_kernel.ptx",
        features: &[],
    },
    Shipped { package: "apps/echo/kernel", output: "apps/echo/ptx/gpunet_echo_kernel.ptx", features: &[] },
    Shipped {
        package: "apps/hello-http/kernel",
        output: "apps/hello-http/ptx/gpunet_hello_http_kernel.ptx",
        features: &[],
    },
    Shipped { package: "apps/kv/kernel", output: "apps/kv/ptx/gpunet_kv_kernel.ptx", features: &[] },
    Shipped {
        package: "apps/rstream/kernel",
        output: "apps/rstream/ptx/gpunet_rstream_kernel.ptx",
        features: &[],
    },
    Shipped {
        package: "gpunet-proxy/kernel",
        output: "gpunet-proxy/ptx/gpunet_queue_kernel.ptx",
        features: &[],
    },
    Shipped {
        package: "apps/symmetric/kernel",
        output: "apps/symmetric/ptx/gpunet_symmetric_kernel.ptx",
        features: &[],
    },
    Shipped {
        package: "apps/tokens/kernel",
        output: "apps/tokens/ptx/gpunet_tokens_kernel.ptx",
        features: &[],
    },
    Shipped { package: "apps/watch/kernel", output: "apps/watch/ptx/gpunet_watch_kernel.ptx", features: &[] },
    Shipped {
        package: "utils/diagnose/kernel",
        output: "utils/diagnose/ptx/gpunet_diagnose_kernel.ptx",
        features: &[],
    },
];

/// Finds the gpunet workspace at or above `start`.
#[must_use]
pub fn workspace_root(start: &Path) -> Option<PathBuf> {
    let is_root = |dir: &&Path| dir.join("utils/build-ptx/Cargo.toml").is_file();
    start.ancestors().find(is_root).map(Path::to_path_buf)
}
