//! What a measurement needs, and what this machine has.

use super::Common;
use gpu_usermap::cuda::Cuda;
use std::net::IpAddr;

/// What a measurement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// So many GPUs, the device among them.
    Gpus(u32),
    /// A program in the folder of this one.
    Beside(&'static str),
    /// A gpunetd that runs: the one that `--daemon` names, or one that `report` starts.
    Daemon,
    /// The address of an RDMA device.
    Address,
}

/// What there is.
pub struct Here {
    /// The GPUs that may be used, the device first; or why there are none.
    gpus: Result<Vec<String>, String>,
    has_daemon: bool,
    has_address: bool,
}

impl Here {
    pub fn look(common: &Common<'_>, address: Option<IpAddr>) -> Self {
        Self {
            gpus: gpus(common.device, common.is_auto),
            has_daemon: common.proxy.names_a_daemon(),
            has_address: address.is_some(),
        }
    }

    /// Returns why a measurement with these needs cannot run.
    pub fn lacks(&self, needs: &[Need]) -> Option<String> {
        needs.iter().find_map(|need| match need {
            Need::Gpus(count) => self.lacks_gpus(*count),
            Need::Daemon if self.has_daemon => None,
            Need::Daemon => lacks_beside("gpunetd"),
            Need::Beside(program) => lacks_beside(program),
            Need::Address if self.has_address => None,
            Need::Address => Some("it needs an RDMA device: --address IP".to_owned()),
        })
    }

    fn lacks_gpus(&self, count: u32) -> Option<String> {
        let needed = if count == 1 { "a GPU".to_owned() } else { format!("{count} GPUs") };
        match &self.gpus {
            Err(why) => Some(format!("it needs {needed}: {why}")),
            Ok(gpus) if gpus.len() < count as usize => {
                Some(format!("it needs {needed}, and this machine has {}", gpus.len()))
            }
            Ok(_) => None,
        }
    }

    /// Returns the first GPU beside the device.
    pub fn other_gpu(&self) -> &str {
        self.gpus.as_ref().ok().and_then(|gpus| gpus.get(1)).map_or("cuda:1", String::as_str)
    }
}

/// Returns the GPUs, with the one that the command line names first.
fn gpus(device: &str, is_auto: bool) -> Result<Vec<String>, String> {
    if device == "cpu" && !is_auto {
        return Err("--device is cpu".to_owned());
    }
    let cuda = Cuda::load().map_err(|error| error.to_string())?;
    let count = cuda.device_count().map_err(|error| error.to_string())?;
    let first = if device.starts_with("cuda:") { device } else { "cuda:0" };
    let mut gpus: Vec<_> = (0..count).map(|gpu| format!("cuda:{gpu}")).collect();
    gpus.sort_by_key(|gpu| gpu != first);
    Ok(gpus)
}

fn lacks_beside(program: &str) -> Option<String> {
    let there = std::env::current_exe().is_ok_and(|own| own.with_file_name(program).is_file());
    (!there).then(|| format!("it needs {program} in this program's folder"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_said() {
        let here = |gpus: &[&str]| Here {
            gpus: Ok(gpus.iter().map(|&gpu| gpu.to_owned()).collect()),
            has_daemon: true,
            has_address: false,
        };
        let one = here(&["cuda:0"]);
        assert_eq!(one.lacks(&[Need::Gpus(1), Need::Daemon]), None);
        let said = |needs: &[Need]| one.lacks(needs).unwrap_or_default();
        assert_eq!(said(&[Need::Gpus(1), Need::Gpus(2)]), "it needs 2 GPUs, and this machine has 1");
        assert_eq!(said(&[Need::Address]), "it needs an RDMA device: --address IP");
        assert_eq!(
            said(&[Need::Beside("no-such-program")]),
            "it needs no-such-program in this program's folder"
        );
        let none = Here { gpus: gpus("cpu", false), ..here(&[]) };
        assert_eq!(none.lacks(&[Need::Gpus(1)]).as_deref(), Some("it needs a GPU: --device is cpu"));
        assert_eq!(here(&["cuda:1", "cuda:0"]).other_gpu(), "cuda:0");
    }
}
