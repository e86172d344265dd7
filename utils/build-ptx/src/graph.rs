//! What `cargo metadata` tells about a kernel crate: its library, features, workspace, and the
//! packages it is built from.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::run::{self, RunError};

/// Why a directory cannot be built as a kernel crate.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// Cargo could not describe the crate.
    #[error("cargo cannot read the kernel crate {path}: {source}", path = .path.display())]
    Cargo {
        /// The crate's manifest.
        path: PathBuf,
        /// Cargo's error.
        r#source: RunError,
    },
    /// The output of `cargo metadata` was not understood.
    #[error("the output of `cargo metadata` was not understood: {0}")]
    Parse(serde_json::Error),
    /// The path holds no package (for example a workspace without a root package).
    #[error("{path} is no package: --crate needs the directory of a package with a [lib]", path = .0.display())]
    NoPackage(PathBuf),
    /// The package has no library.
    #[error("package {0} has no [lib]: kernels are built from a library (src/lib.rs)")]
    NoLibrary(String),
}

/// A kernel crate, as far as building it needs.
#[derive(Clone, Debug)]
pub struct KernelCrate {
    /// Path of its Cargo.toml.
    pub manifest: PathBuf,
    /// Package name.
    pub package: String,
    /// Name of the library, as the compiler spells it.
    pub library: String,
    /// Cargo features that the package declares.
    pub features: Vec<String>,
    /// Root of the workspace it belongs to.
    pub workspace: PathBuf,
    /// Cargo's target directory for that workspace.
    pub target_directory: PathBuf,
    /// Name with version, and directory, of every package it is built from, itself included.
    pub packages: Vec<(String, PathBuf)>,
}

/// Describes the package in directory `crate_dir`.
///
/// # Errors
/// There is no package with a library, or cargo cannot resolve its dependencies.
pub fn read(crate_dir: &Path) -> Result<KernelCrate, GraphError> {
    let asked = if crate_dir.is_file() { crate_dir.to_path_buf() } else { crate_dir.join("Cargo.toml") };
    let manifest = asked.canonicalize().map_err(|_| GraphError::NoPackage(crate_dir.to_path_buf()))?;
    let mut cargo = crate::toolchain::cargo();
    cargo
        .args([
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            crate::toolchain::TARGET,
            "--manifest-path",
        ])
        .arg(&manifest);
    let text =
        run::stdout(&mut cargo).map_err(|source| GraphError::Cargo { path: manifest.clone(), source })?;
    let metadata: Metadata = serde_json::from_str(&text).map_err(GraphError::Parse)?;
    describe(manifest, metadata)
}

fn describe(manifest: PathBuf, metadata: Metadata) -> Result<KernelCrate, GraphError> {
    let own = metadata.packages.iter().find(|p| p.manifest_path == manifest);
    let own = own.ok_or_else(|| GraphError::NoPackage(manifest.clone()))?;
    let is_library = |t: &&Target| t.kind.iter().any(|k| k.contains("lib"));
    let library =
        own.targets.iter().find(is_library).ok_or_else(|| GraphError::NoLibrary(own.name.clone()))?;
    let needed = reachable(&own.id, &metadata.resolve);
    let directory = |p: &Package| p.manifest_path.parent().map(Path::to_path_buf).unwrap_or_default();
    let packages = metadata.packages.iter().filter(|p| needed.contains(p.id.as_str()));
    Ok(KernelCrate {
        package: own.name.clone(),
        library: library.name.replace('-', "_"),
        features: own.features.keys().cloned().collect(),
        packages: packages.map(|p| (format!("{}-{}", p.name, p.version), directory(p))).collect(),
        workspace: metadata.workspace_root,
        target_directory: metadata.target_directory,
        manifest,
    })
}

fn reachable<'a>(start: &'a str, resolve: &'a Resolve) -> HashSet<&'a str> {
    let nodes: HashMap<&str, &Node> = resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(nodes.get(id).iter().flat_map(|n| n.dependencies.iter().map(String::as_str)));
        }
    }
    seen
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    features: HashMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}
