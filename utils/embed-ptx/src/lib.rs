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

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io};

/// How much effort goes into compression: of the levels 1 to 10 the one after which nothing gets
/// smaller.
const LEVEL: u8 = 6;

/// Compresses a file of PTX for [`embedded!`], by the name that it has without its folders. For a
/// build script; `ptx` is relative to the package. The script runs again when the file has changed.
///
/// # Errors
/// The file cannot be read, or nothing can be written to `OUT_DIR`.
///
/// # Panics
/// Outside a build script, where there is no `OUT_DIR`.
pub fn compress(ptx: impl AsRef<Path>) -> io::Result<()> {
    let ptx = ptx.as_ref();
    println!("cargo::rerun-if-changed={}", ptx.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let text = fs::read(ptx)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", ptx.display())))?;
    let name = ptx.file_name().unwrap_or_default();
    fs::write(
        out.join(name).with_extension("ptx.z"),
        miniz_oxide::deflate::compress_to_vec_zlib(&text, LEVEL),
    )
}

/// The PTX that the build script has compressed, by the file's name.
#[macro_export]
macro_rules! embedded {
    ($name:literal) => {
        $crate::Embedded::new(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".z")))
    };
}

/// Compressed PTX, expanded when it is used for the first time.
#[derive(Debug)]
pub struct Embedded {
    compressed: &'static [u8],
    text: OnceLock<String>,
}

impl Embedded {
    /// What [`compress`] has written.
    #[must_use]
    pub const fn new(compressed: &'static [u8]) -> Self {
        Self { compressed, text: OnceLock::new() }
    }

    /// The text.
    ///
    /// # Panics
    /// The bytes are not what [`compress`] has written.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.get_or_init(|| {
            let text = miniz_oxide::inflate::decompress_to_vec_zlib(self.compressed)
                .unwrap_or_else(|error| panic!("embedded PTX is damaged: {error}"));
            String::from_utf8(text).expect("PTX is ASCII")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_compressed_is_expanded() {
        let text = ".visible .entry kernel() { ret; }\n".repeat(1000);
        let compressed = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), LEVEL);
        assert!(compressed.len() * 10 < text.len());
        assert_eq!(Embedded::new(compressed.leak()).text(), text);
    }
}
