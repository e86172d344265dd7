//! A server by hyper, if it is built: an example of gpunet-http, whose tests need hyper anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "hyper-hello";
const BUILD: &str = "cargo build --release -p gpunet-http --example hyper-hello";

/// Returns the program in this one's folder, or where cargo puts examples; or why there is none.
pub fn find(without_foreign: bool) -> Result<PathBuf, String> {
    if without_foreign {
        return Err("--without-foreign".to_owned());
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let places = [folder.join(PROGRAM), folder.join("examples").join(PROGRAM)];
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| format!("{PROGRAM} is not built: {BUILD}"))
}

/// Returns the command of a server with this number of threads. It says where it listens.
pub fn command(program: &Path, threads: u32) -> Command {
    let mut command = Command::new(program);
    command.arg(threads.to_string());
    command
}
