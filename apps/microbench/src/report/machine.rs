//! The machine on which the figures were measured, and the program that measured them.

use gpu_usermap::probe::probe;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hasher};
use std::{fs, io};

/// The facts about the machine that a reader of the figures needs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Machine {
    pub cpu: String,
    /// The cores that this process may use.
    pub cores: usize,
    /// The kernel, and whether it runs in a virtual machine.
    pub system: String,
    /// The versions of CUDA and of the driver, or why there is no driver.
    pub driver: String,
    pub gpus: Vec<String>,
}

impl Machine {
    pub fn look() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let guest = field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
        let machine = if guest { ", a virtual machine" } else { "" };
        let probe = probe();
        let driver = match &probe.driver {
            Err(why) => format!("none ({why})"),
            Ok(driver) => format!("CUDA {}{}", driver.version, module()),
        };
        let gpus = probe.devices.iter().map(|gpu| format!("cuda:{} {}", gpu.ordinal, gpu.name)).collect();
        Self {
            cpu: field("model name").unwrap_or_else(|| "unknown CPU".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            system: format!("Linux {}{machine}", release.trim()),
            driver,
            gpus,
        }
    }

    /// Returns its processors and GPUs in words.
    pub fn hardware(&self) -> String {
        let gpus = if self.gpus.is_empty() { "no GPU".to_owned() } else { self.gpus.join(", ") };
        format!("{} x {}; {gpus}", self.cores, self.cpu)
    }
}

/// The facts about the program that its version does not tell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Build {
    /// The commit that was checked out when the program was built, if it was built in a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// `release`, or `debug`, whose figures say little.
    pub profile: String,
    /// A number made of the program's bytes: two builds of one commit may differ. Only `report`
    /// makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl Build {
    pub fn look() -> Self {
        let commit = option_env!("GPUNET_BENCH_COMMIT").map(str::to_owned);
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        Self { commit, profile: profile.to_owned(), program: None }
    }

    /// As [`Build::look`], and reads the program.
    pub fn look_closely() -> io::Result<Self> {
        let mut hasher = DefaultHasher::new();
        hasher.write(&fs::read("/proc/self/exe")?);
        Ok(Self { program: Some(format!("{:016x}", hasher.finish())), ..Self::look() })
    }

    /// Returns in words what it is, beside the version.
    pub fn name(&self) -> String {
        let commit = self.commit.as_ref().map_or("no commit".to_owned(), |commit| format!("commit {commit}"));
        if self.profile == "release" { commit } else { format!("{commit}, a {} build", self.profile) }
    }
}

/// Returns the version of NVIDIA's kernel module.
fn module() -> String {
    let version = fs::read_to_string("/sys/module/nvidia/version").or_else(|_| {
        let text = fs::read_to_string("/proc/driver/nvidia/version")?;
        // "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build ..."
        let found = text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        found.map(str::to_owned).ok_or(std::io::Error::from(std::io::ErrorKind::NotFound))
    });
    version.map_or(String::new(), |version: String| format!(", driver {}", version.trim()))
}
