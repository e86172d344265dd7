//! Command line of the PTX build: `cargo run -p gpunet-build-ptx -- --help`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gpunet_build_ptx::check::{self, Verdict};
use gpunet_build_ptx::graph::{self, KernelCrate};
use gpunet_build_ptx::lint::Finding;
use gpunet_build_ptx::ptx::{Build, DEFAULT_ARCH};
use gpunet_build_ptx::text::Module;
use gpunet_build_ptx::toolchain::{Compiler, PINNED_RUSTC, Sources};
use gpunet_build_ptx::{assemble, lint, report, shipped, toolchain, wrapper};

/// Builds Rust kernel crates into PTX with the stable compiler, and checks the result.
///
/// Without --crate it builds the kernels that this repository ships.
#[derive(Parser)]
#[command(name = "gpunet-build-ptx")]
struct Arguments {
    /// Directory of a kernel crate with a plain [lib]; may be given several times
    #[arg(long = "crate", value_name = "PATH")]
    crates: Vec<PathBuf>,
    /// Output file; only with a single --crate [default: <library>.ptx in the current directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Build a copy and fail if the existing output file differs
    #[arg(long)]
    check: bool,
    /// Also run ptxas on the result, and report registers and spills of each kernel, and how long
    /// it takes alone
    #[arg(long)]
    assemble: bool,
    /// Oldest GPU architecture that the PTX must run on
    #[arg(long, default_value = DEFAULT_ARCH)]
    arch: String,
    /// Cargo features of the kernel crate
    #[arg(long, value_delimiter = ',')]
    features: Vec<String>,
    /// Name of a lint rule that may be broken; not for shipped kernels
    #[arg(long, value_name = "RULE", requires = "crates")]
    allow: Vec<String>,
    /// Directory for build files [default: `ptx` in cargo's target directory]
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
}

/// One PTX file to make.
struct Job {
    kernel: KernelCrate,
    out: PathBuf,
    features: Vec<String>,
    shipped: bool,
}

fn main() -> ExitCode {
    if std::env::var_os(wrapper::ROLE).is_some() {
        return wrapper::main(std::env::args_os().skip(1));
    }
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpunet-build-ptx: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let compiler = Compiler::detect()?;
    let jobs = jobs(arguments)?;
    if !compiler.is_pinned() {
        eprintln!(
            "WARNING: rustc is {}, not the pinned {}: the output will not match byte for byte.",
            compiler.describe(),
            toolchain::pinned()
        );
        if !arguments.check && jobs.iter().any(|job| job.shipped) {
            return Err(format!("the shipped PTX is made by rustc {PINNED_RUSTC} only: `rustup toolchain install {PINNED_RUSTC}`, then `cargo +{PINNED_RUSTC} run -p gpunet-build-ptx`").into());
        }
    }
    let sources = Sources::find(&compiler)?;
    let mut failed = 0;
    for job in &jobs {
        if let Err(error) = job.run(arguments, &compiler, &sources) {
            eprintln!("{}: {error}", job.kernel.package);
            failed += 1;
        }
    }
    if failed > 0 { Err(format!("{failed} of {} kernels failed", jobs.len()).into()) } else { Ok(()) }
}

fn jobs(arguments: &Arguments) -> Result<Vec<Job>, Box<dyn Error>> {
    if arguments.crates.is_empty() {
        if arguments.out.is_some() {
            return Err("--out needs --crate: the output files of shipped kernels are fixed".into());
        }
        let root = shipped::workspace_root(&std::env::current_dir()?)
            .ok_or("run this inside the gpunet workspace, or name a kernel crate with --crate")?;
        return shipped::SHIPPED.iter().map(|shipped| shipped_job(&root, shipped)).collect();
    }
    if arguments.out.is_some() && arguments.crates.len() > 1 {
        return Err("--out names one file, but --crate is given several times".into());
    }
    let job = |path: &PathBuf| {
        let kernel = graph::read(path)?;
        let out = arguments.out.clone().unwrap_or_else(|| format!("{}.ptx", kernel.library).into());
        Ok(Job { kernel, out, features: arguments.features.clone(), shipped: false })
    };
    arguments.crates.iter().map(job).collect()
}

fn shipped_job(root: &Path, shipped: &shipped::Shipped) -> Result<Job, Box<dyn Error>> {
    let kernel = graph::read(&root.join(shipped.package))?;
    let declared = |name: &&&str| kernel.features.iter().any(|feature| feature == **name);
    let features = shipped.features.iter().filter(declared).map(ToString::to_string).collect();
    Ok(Job { kernel, out: root.join(shipped.output), features, shipped: true })
}

impl Job {
    fn run(
        &self,
        arguments: &Arguments,
        compiler: &Compiler,
        sources: &Sources,
    ) -> Result<(), Box<dyn Error>> {
        let target_dir =
            arguments.target_dir.clone().unwrap_or_else(|| self.kernel.target_directory.join("ptx"));
        let build = Build {
            kernel: &self.kernel,
            compiler,
            sources,
            arch: &arguments.arch,
            features: &self.features,
            target_dir: &target_dir,
        };
        let ptx = build.run()?;
        let findings = lint::run(&ptx, &arguments.allow);
        if !findings.is_empty() {
            return Err(self.rejection(&build, &arguments.allow, (ptx, findings))?.into());
        }
        if arguments.assemble {
            let ptxas = assemble::find_ptxas(&target_dir)?;
            for usage in assemble::assemble(&ptxas, &ptx, &target_dir)? {
                println!("{usage}");
            }
            let module = Module::parse(&ptx);
            let kernels: Vec<_> =
                module.functions.iter().filter(|f| f.entry).map(|f| f.name.as_str()).collect();
            for cost in assemble::costs(&ptxas, &ptx, &kernels, &target_dir)? {
                println!("{cost}");
            }
            println!("ptxas accepts {} for {}", self.kernel.library, assemble::ARCHITECTURES.join(", "));
        }
        if arguments.check { self.check(&ptx, compiler) } else { self.write(&ptx) }
    }

    /// Describes where the kernel breaks rules. For that it builds the kernel again, with line
    /// numbers.
    fn rejection(
        &self,
        build: &Build,
        allow: &[String],
        without_lines: (String, Vec<Finding>),
    ) -> Result<String, Box<dyn Error>> {
        eprintln!("The PTX breaks rules; building it with line numbers to find where.");
        let with_lines = build.run_with_lines()?;
        let found = lint::run(&with_lines, allow);
        let (ptx, findings) = if found.is_empty() { without_lines } else { (with_lines, found) };
        let kept = build.target_dir.join(format!("{}.rejected.ptx", self.kernel.library));
        fs::write(&kept, ptx)?;
        Ok(format!("the PTX breaks rules; it is kept in {}\n{}", kept.display(), report::describe(&findings)))
    }

    fn check(&self, fresh: &str, compiler: &Compiler) -> Result<(), Box<dyn Error>> {
        let refresh = self.refresh_command();
        let out = self.out.display();
        let checked_in = fs::read_to_string(&self.out)
            .map_err(|error| format!("cannot read {out}: {error}; make it with `{refresh}`"))?;
        match check::compare(&checked_in, fresh, compiler.is_pinned()) {
            Verdict::Same => println!("{out} is up to date."),
            Verdict::SameClasses => println!(
                "{out}: ONLY THE INSTRUCTION CLASSES WERE COMPARED (they agree), because rustc is {} and not {}.",
                compiler.describe(),
                toolchain::pinned()
            ),
            Verdict::Differs(how) => {
                return Err(format!(
                    "{out} differs from a build of the sources:\n{how}\nRefresh it with `{refresh}` and check it in."
                )
                .into());
            }
        }
        Ok(())
    }

    fn write(&self, ptx: &str) -> Result<(), Box<dyn Error>> {
        let error = |error| format!("cannot write {}: {error}", self.out.display());
        if let Some(directory) = self.out.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(directory).map_err(error)?;
        }
        fs::write(&self.out, ptx).map_err(error)?;
        println!("wrote {} ({} bytes)", self.out.display(), ptx.len());
        Ok(())
    }

    fn refresh_command(&self) -> String {
        if self.shipped {
            return "cargo run -p gpunet-build-ptx".into();
        }
        let directory = self.kernel.manifest.parent().unwrap_or(Path::new("."));
        format!(
            "cargo run -p gpunet-build-ptx -- --crate {} --out {}",
            directory.display(),
            self.out.display()
        )
    }
}
