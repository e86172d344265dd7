//! Echo servers in Python, where PyTorch, Triton and the package gpunet are installed.

use super::run;
use crate::scratch::Scratch;
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

const SCRIPT: &str = include_str!("../../foreign/triton_echo.py");
/// The first import of PyTorch reads some gigabytes.
const LIMIT: Duration = Duration::from_secs(60);

/// The script, and where it complains.
pub struct Program {
    folder: Scratch,
    gpu: String,
}

impl Program {
    /// Writes the script, or says why it cannot run.
    pub fn find(device: &str, without_foreign: bool) -> Result<Self, String> {
        if without_foreign {
            return Err("--without-foreign".to_owned());
        }
        let Some(gpu) = device.strip_prefix("cuda") else {
            return Err("it needs a GPU".to_owned());
        };
        let gpu = gpu.strip_prefix(':').unwrap_or("0").to_owned();
        let imports = ["-c", "import torch, triton, gpunet.triton"];
        run(Command::new("python3").args(imports), LIMIT).map_err(|error| error.to_string())?;
        let text = |error: std::io::Error| error.to_string();
        let folder = std::env::temp_dir().join(format!("gpunet-bench-triton-{}", std::process::id()));
        let folder = Scratch::folder(folder).map_err(text)?;
        std::fs::write(folder.path().join("triton_echo.py"), SCRIPT).map_err(text)?;
        Ok(Self { folder, gpu })
    }

    /// Returns the command of a server: `kernel` or `host`. It says where it listens.
    pub fn command(&self, which: &str) -> Command {
        let mut command = Command::new("python3");
        command.arg(self.folder.path().join("triton_echo.py")).args([which, &self.gpu]);
        command.stderr(File::create(self.log()).map_or_else(|_| Stdio::null(), Stdio::from));
        command
    }

    /// Returns the last line that a server has written to stderr.
    pub fn complaint(&self) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
    }

    fn log(&self) -> std::path::PathBuf {
        self.folder.path().join("stderr")
    }
}
