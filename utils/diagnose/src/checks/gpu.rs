//! The CUDA driver and each GPU.

mod device;
mod slot;

use super::no_driver;
use crate::check::Check;
use crate::facts::Facts;
use crate::libraries::Cuda;

/// Checks of each GPU, for when there is none.
const EACH: [&str; 10] = [
    "gpu.compute",
    "gpu.mode",
    "gpu.registration",
    "gpu.sharing",
    "gpu.gpudirect",
    "gpu.dmabuf",
    "gpu.ordering",
    "gpu.placement",
    "gpu.bar1",
    "gpu.link",
];

/// The oldest CUDA that gpunet is tried with.
const CUDA: (u32, u32) = (12, 0);

pub fn checks(facts: &Facts) -> Vec<Check> {
    let cuda = match &facts.libraries.driver {
        Ok(driver) => &driver.cuda,
        Err(why) => {
            let mut checks = vec![no_driver("gpu.driver", why), no_driver("gpu.devices", why)];
            let unknown = EACH.iter().filter(|id| !slot::IDS.contains(id)).map(|id| no_driver(id, why));
            checks.extend(unknown);
            checks.extend(slot::of_all(facts));
            return checks;
        }
    };
    let mut checks = vec![driver(cuda, facts.gpus.len()), devices(cuda, facts.gpus.len())];
    let gpus = facts.libraries.gpus();
    if gpus.is_empty() && facts.gpus.is_empty() {
        checks.extend(EACH.iter().map(|id| Check::unknown(id, "no GPU to look at", "see gpu.devices")));
        return checks;
    }
    checks.extend(gpus.iter().flat_map(device::checks));
    checks.extend(slot::of_all(facts));
    checks
}

fn driver(cuda: &Result<Cuda, String>, on_bus: usize) -> Check {
    const ID: &str = "gpu.driver";
    match cuda {
        Err(why) if why.contains("SYSTEM_NOT_READY") => {
            Check::missing(ID, why.clone(), "start nvidia-fabricmanager of the driver's version (as root)")
        }
        Err(why) if on_bus == 0 => {
            let advice =
                "nothing to do without an NVIDIA GPU; in a container, start it with the GPU (--gpus all)";
            Check::missing(ID, why.clone(), advice)
        }
        Err(why) => Check::missing(
            ID,
            why.clone(),
            "install NVIDIA's driver with libcuda.so.1; in a container, start it with the GPU (--gpus all)",
        ),
        Ok(cuda) => {
            let (major, minor) = cuda.version;
            let text = format!("CUDA {major}.{minor}");
            if cuda.version < CUDA {
                let advice = "update the driver: 525 or later";
                return Check::degraded(
                    ID,
                    format!("{text}, older than any that gpunet is tried with"),
                    advice,
                );
            }
            if cuda.lazy {
                return Check::degraded(
                    ID,
                    format!(
                        "{text}; CUDA_MODULE_LOADING makes it load kernels late, behind kernels that wait"
                    ),
                    "unset CUDA_MODULE_LOADING, or set it to EAGER",
                );
            }
            Check::ok(ID, text)
        }
    }
}

fn devices(cuda: &Result<Cuda, String>, on_bus: usize) -> Check {
    const ID: &str = "gpu.devices";
    let none = Cuda::default();
    let cuda = cuda.as_ref().unwrap_or(&none);
    if let Some((ordinal, why)) = cuda.failed.first() {
        let advice = "`nvidia-smi` and `dmesg` (Xid) say more; reset or replace the GPU";
        return Check::degraded(ID, format!("GPU {ordinal} does not answer: {why}"), advice);
    }
    if cuda.gpus.is_empty() {
        return match on_bus {
            0 => Check::missing(
                ID,
                "none: kernels run as CPU thread blocks",
                "nothing to do if none was expected",
            ),
            n => Check::missing(
                ID,
                format!("{n} on the PCI bus, none usable"),
                "see gpu.driver and modules.nvidia*",
            ),
        };
    }
    let names: Vec<String> =
        cuda.gpus.iter().map(|gpu| format!("cuda:{} {}", gpu.ordinal, gpu.name)).collect();
    let mut text = names.join(", ");
    if on_bus > cuda.gpus.len() {
        text += &format!(" ({on_bus} on the PCI bus: CUDA_VISIBLE_DEVICES or the container hides some)");
    }
    Check::ok(ID, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;
    use crate::libraries::{Gpu, nothing};

    #[test]
    fn drivers_that_are_missing_old_or_not_ready_are_told_apart() {
        let with = |version| Ok(Cuda { version, ..Cuda::default() });
        assert_eq!(driver(&with((13, 0)), 1).status, Status::Ok);
        assert_eq!(driver(&with((11, 4)), 1).status, Status::Degraded);
        let lazy = Ok(Cuda { version: (12, 8), lazy: true, ..Cuda::default() });
        assert_eq!(driver(&lazy, 1).status, Status::Degraded);
        let advice = |why: &str, on_bus| driver(&Err(why.to_owned()), on_bus).advice.expect("advice");
        assert!(advice("cuInit failed: CUDA_ERROR_SYSTEM_NOT_READY (802)", 8).contains("fabricmanager"));
        assert!(advice("libcuda.so.1 is not here", 0).contains("nothing to do"));
        assert!(advice("libcuda.so.1 is not here", 1).contains("install"));
    }

    #[test]
    fn a_gpu_on_the_bus_that_cuda_does_not_see_is_told() {
        let none = Err("no libcuda.so.1".to_owned());
        assert!(devices(&none, 2).evidence.starts_with("2 on the PCI bus, none usable"));
        let one = Ok(Cuda { gpus: vec![Gpu::default()], ..Cuda::default() });
        assert_eq!(devices(&one, 1).status, Status::Ok);
        assert!(devices(&one, 2).evidence.contains("hides some"));
        let failed = Ok(Cuda { failed: vec![(3, "cuDeviceGet failed".into())], ..Cuda::default() });
        assert_eq!(devices(&failed, 1).status, Status::Degraded);
    }

    #[test]
    fn without_a_gpu_each_check_is_unknown_and_none_ok() {
        let mut facts = crate::facts::none();
        facts.libraries = nothing();
        let checks = checks(&facts);
        assert_eq!(checks.len(), 2 + EACH.len());
        assert!(checks.iter().all(|check| !check.is_ok()), "{checks:?}");
    }
}
