//! Compresses the PTX of the C functions for kernels, and lists their headers: the module embeds
//! both.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    gpunet_embed_ptx::compress("../gpunet-device/ptx/gpunet_device.ptx")?;
    let root = fs::canonicalize("../gpunet-device/include")?;
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    find(&root, &mut files)?;
    files.sort();
    let entry = |file: &PathBuf| {
        let name = file.strip_prefix(&root).unwrap_or(file);
        format!("({:?}, include_str!({file:?})),\n", name)
    };
    let list: String = files.iter().map(entry).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    fs::write(out.join("headers.rs"), format!("&[\n{list}]\n"))
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { find(&path, files)? } else { files.push(path) }
    }
    Ok(())
}
