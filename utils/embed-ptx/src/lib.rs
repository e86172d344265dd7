//! PTX in a program, compressed: text of some megabytes takes a tenth of it.
//!
//! The build script of the program compresses, and the program expands what it loads:
//!
//! ```no_run
//! // build.rs
//! fn main() -> std::io::Result<()> {
//!     gpunet_embed_ptx::compress("ptx/kernels.ptx")
//! }
//! ```
//!
//! ```ignore
//! use gpunet_embed_ptx::{Embedded, embedded};
//!
//! static KERNELS: Embedded = embedded!("kernels.ptx");
//! let program = attachment.load(KERNELS.text(), 128)?;
//! ```
//!
//! Machine code can be embedded beside the text, which a driver then need not assemble: where
//! `GPUNET_CUBINS` names a folder that `utils/release/objects --programs` has filled, the build
//! script takes the cubins of its text from there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io};

/// Names the folder with cubins, when a program is built.
const CUBINS: &str = "GPUNET_CUBINS";

/// How much effort goes into compression: of the levels 1 to 10 the one after which nothing gets
/// smaller.
const LEVEL: u8 = 6;

/// Compresses a file of PTX for [`embedded!`], by the name that it has without its folders, and the
/// cubins that were made of it, if `GPUNET_CUBINS` names their folder. For a build script; `ptx` is
/// relative to the package. The script runs again when the file or a cubin has changed.
///
/// # Errors
/// A file cannot be read, the cubins were made of other PTX, or nothing can be written to
/// `OUT_DIR`.
///
/// # Panics
/// Outside a build script, where there is no `OUT_DIR`.
pub fn compress(ptx: impl AsRef<Path>) -> io::Result<()> {
    let ptx = ptx.as_ref();
    println!("cargo::rerun-if-changed={}", ptx.display());
    println!("cargo::rerun-if-env-changed={CUBINS}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let text = read(ptx)?;
    let name = out.join(ptx.file_name().unwrap_or_default());
    let pack =
        |to: &Path, bytes: &[u8]| fs::write(to, miniz_oxide::deflate::compress_to_vec_zlib(bytes, LEVEL));
    pack(&name.with_extension("ptx.z"), &text)?;
    let mut list = String::from("&[");
    for (architecture, cubin) in cubins(env::var_os(CUBINS).map(PathBuf::from), ptx, &text)? {
        println!("cargo::rerun-if-changed={}", cubin.display());
        let packed = name.with_extension(format!("{architecture}.z"));
        pack(&packed, &read(&cubin)?)?;
        let _ = write!(list, "({architecture:?}, include_bytes!({packed:?})),");
    }
    fs::write(name.with_extension("ptx.cubins"), list + "]")
}

/// Finds the cubins of a text below a folder, each with its architecture, in the order of their
/// names.
fn cubins(root: Option<PathBuf>, ptx: &Path, text: &[u8]) -> io::Result<Vec<(String, PathBuf)>> {
    let Some(folder) = root.map(|root| root.join(ptx.file_stem().unwrap_or_default())) else {
        return Ok(Vec::new());
    };
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    // A copy of what they were made of.
    if read(&folder.join("source.ptx"))? != text {
        let message = format!("the cubins in {} were made of other PTX", folder.display());
        return Err(io::Error::other(message));
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cubin") {
            found.push((path.file_stem().unwrap_or_default().to_string_lossy().into_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))
}

/// The PTX that the build script has compressed, by the file's name, and its cubins.
#[macro_export]
macro_rules! embedded {
    ($name:literal) => {
        $crate::Embedded::new(
            include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".z")),
            include!(concat!(env!("OUT_DIR"), "/", $name, ".cubins")),
        )
    };
}

/// Compressed PTX, expanded when it is used for the first time, and compressed machine code.
#[derive(Debug)]
pub struct Embedded {
    compressed: &'static [u8],
    cubins: &'static [(&'static str, &'static [u8])],
    text: OnceLock<String>,
}

impl Embedded {
    /// What [`compress`] has written.
    #[must_use]
    pub const fn new(compressed: &'static [u8], cubins: &'static [(&'static str, &'static [u8])]) -> Self {
        Self { compressed, cubins, text: OnceLock::new() }
    }

    /// The cubin for an architecture, such as `sm_90`; `None` if the program was built without one.
    ///
    /// # Panics
    /// As [`Embedded::text`].
    #[must_use]
    pub fn cubin(&self, architecture: &str) -> Option<Vec<u8>> {
        let (_, compressed) = self.cubins.iter().find(|(name, _)| *name == architecture)?;
        Some(expand(compressed))
    }

    /// The text.
    ///
    /// # Panics
    /// The bytes are not what [`compress`] has written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| String::from_utf8(expand(self.compressed)).expect("PTX is ASCII"))
    }
}

fn expand(compressed: &[u8]) -> Vec<u8> {
    miniz_oxide::inflate::decompress_to_vec_zlib(compressed)
        .unwrap_or_else(|error| panic!("embedded code is damaged: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_is_expanded() {
        let text = ".visible .entry kernel() { ret; }\n".repeat(1000);
        let compressed = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), LEVEL);
        assert!(compressed.len() * 10 < text.len());
        let compressed: &[u8] = compressed.leak();
        let embedded = Embedded::new(compressed, [("sm_90", compressed)].to_vec().leak());
        assert_eq!(embedded.text(), text);
        assert_eq!(embedded.cubin("sm_90").as_deref(), Some(text.as_bytes()));
        assert_eq!(embedded.cubin("sm_80"), None);
    }

    #[test]
    fn cubins_of_other_ptx_are_refused() {
        let root = env::temp_dir().join(format!("gpunet-embed-ptx-{}", std::process::id()));
        let folder = root.join("kernel");
        let find = |text: &[u8]| cubins(Some(root.clone()), Path::new("ptx/kernel.ptx"), text);
        assert_eq!(find(b"new").expect("none"), []);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, content) in [("source.ptx", "new"), ("sm_90.cubin", "code"), ("sm_100.cubin", "code")] {
            fs::write(folder.join(name), content).expect("a file");
        }
        let found: Vec<_> = find(b"new").expect("two").into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, ["sm_100", "sm_90"]);
        assert!(find(b"old").is_err());
        fs::remove_dir_all(root).expect("removed");
    }
}
