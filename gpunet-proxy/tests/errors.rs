//! A message says everything, once: an error whose text contains its cause does not return it as
//! its source.

use gpu_usermap::RegionError;
use gpu_usermap::cuda::{
    CoResidencyError, CopyError, CudaError, DmabufError, ImportError, LaunchError as CudaLaunchError,
    NotShareable, RdmaCallError, RegisterError, SymbolError, SymbolKind,
};
use gpunet_proxy::config::BadConfig;
use gpunet_proxy::daemon::StartError;
use gpunet_proxy::device::cpu::{self, BlockPanicked};
use gpunet_proxy::device::{self, Group, Kernel};
use gpunet_proxy::queue::QueueError;
use gpunet_proxy::socket::{DirectionError, SocketError};
use gpunet_proxy::team::TeamError;
use gpunet_proxy::{
    AllocError, AttachError, DaemonError, EmbedError, KernelError, LaunchError, OpenError, SnapshotError,
};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

fn io() -> io::Error {
    io::Error::from_raw_os_error(libc::EMFILE)
}

fn cuda() -> CudaError {
    CudaError { call: "cuCall", code: 2, name: "CUDA_ERROR_OUT_OF_MEMORY".to_owned() }
}

fn symbol() -> SymbolError {
    SymbolError { kind: SymbolKind::Function, name: "echo".to_owned(), source: cuda() }
}

fn region() -> RegionError {
    RegionError::NoMemory { len: 4096, source: io() }
}

fn launch() -> CudaLaunchError {
    CudaLaunchError::Cuda { index: 0, kernel: "echo".to_owned(), started: 0, source: cuda() }
}

fn setting() -> BadConfig {
    BadConfig { setting: "sockets", value: 0, expected: "1 to 65536" }
}

fn daemon() -> DaemonError {
    DaemonError::NotThere { path: "/run/x".into(), source: io() }
}

fn embed() -> EmbedError {
    EmbedError::Start { what: "an eventfd", source: io() }
}

fn member() -> TeamError {
    TeamError::Io { doing: "cannot reach member 0".to_owned(), source: io() }
}

#[derive(Clone, Copy)]
struct Panics;

impl Kernel for Panics {
    const ENTRY: &'static str = "panics";
    fn run<G: Group>(self, _: &G) {
        panic!("out of cheese");
    }
}

fn panicked() -> BlockPanicked {
    let launch = cpu::launch(1, 1, Panics).expect("a thread");
    launch.wait().expect_err("its block panicked")
}

/// One of each error that has a cause.
fn errors() -> Vec<Box<dyn Error>> {
    vec![
        Box::new(symbol()),
        Box::new(member()),
        Box::new(SocketError::Memory(CopyError::Cuda(cuda()))),
        Box::new(DirectionError::Memory(CopyError::Cuda(cuda()))),
        Box::new(QueueError::Direction(DirectionError::Memory(CopyError::Cuda(cuda())))),
        Box::new(QueueError::TeamBroken(member())),
        Box::new(QueueError::Thread(io())),
        Box::new(QueueError::Device(Box::new(CopyError::Cuda(cuda())))),
        Box::new(SnapshotError::Daemon(daemon())),
        Box::new(io::Error::from(QueueError::Thread(io()))),
        Box::new(region()),
        Box::new(RegionError::DescriptorLimit { source: io() }),
        Box::new(RegionError::Memfd { call: "fstat", source: io() }),
        Box::new(RegionError::Mmap { len: 4096, source: io() }),
        Box::new(RegisterError::Region(region())),
        Box::new(RegisterError::Cuda(cuda())),
        Box::new(DmabufError::Cuda(cuda())),
        Box::new(NotShareable::Cuda(cuda())),
        Box::new(ImportError::Cuda(cuda())),
        Box::new(RdmaCallError::Cuda(cuda())),
        Box::new(CoResidencyError::Cuda(cuda())),
        Box::new(CopyError::Cuda(cuda())),
        Box::new(CopyError::Symbol(symbol())),
        Box::new(launch()),
        Box::new(AllocError::Cuda { len: 4096, source: cuda() }),
        Box::new(AttachError::Region { bytes: 4096, source: region() }),
        Box::new(AttachError::Register(RegisterError::Region(region()))),
        Box::new(AttachError::Alloc(AllocError::Cuda { len: 4096, source: cuda() })),
        Box::new(AttachError::Copy(CopyError::Cuda(cuda()))),
        Box::new(AttachError::Thread(io())),
        Box::new(AttachError::Doorbell(io())),
        Box::new(AttachError::Daemon(daemon())),
        Box::new(EmbedError::Config(setting())),
        Box::new(embed()),
        Box::new(StartError::Embed(embed())),
        Box::new(StartError::Listener(io())),
        Box::new(StartError::Thread(io())),
        Box::new(daemon()),
        Box::new(DaemonError::Connect { path: "/run/x".into(), source: io() }),
        Box::new(DaemonError::Silent { path: "/run/x".into(), source: io() }),
        Box::new(DaemonError::Config(setting())),
        Box::new(io::Error::from(daemon())),
        Box::new(OpenError::Daemon(daemon())),
        Box::new(OpenError::Embed(embed())),
        Box::new(LaunchError::Entry(symbol())),
        Box::new(LaunchError::NotCoResident(CoResidencyError::Cuda(cuda()))),
        Box::new(LaunchError::Threads(io())),
        Box::new(LaunchError::Cuda(launch())),
        Box::new(KernelError::Cuda(cuda())),
        Box::new(KernelError::Panicked(panicked())),
    ]
}

#[test]
fn a_chain_says_nothing_twice() {
    for error in errors() {
        let mut error: &dyn Error = &*error;
        while let Some(source) = error.source() {
            let (said, again) = (error.to_string(), source.to_string());
            assert!(!said.contains(&again), "{said:?} says its source already: {again:?}");
            error = source;
        }
    }
}

#[test]
fn a_message_contains_its_cause() {
    let causes = [io().to_string(), cuda().to_string(), setting().to_string(), "out of cheese".to_owned()];
    for error in errors() {
        let said = error.to_string();
        assert!(causes.iter().any(|cause| said.contains(cause)), "{said}");
    }
}

#[test]
fn an_io_error_holds_what_it_was_made_of() {
    let text = DirectionError::InUseByLaunch.to_string();
    let error = io::Error::from(QueueError::Direction(DirectionError::InUseByLaunch));
    assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::ResourceBusy, text));
    assert!(matches!(error.downcast::<DirectionError>(), Ok(DirectionError::InUseByLaunch)));
    // The system's error says it all.
    let error = io::Error::from(SocketError::Failed(device::Error::ConnectionRefused));
    assert_eq!(error.raw_os_error(), Some(libc::ECONNREFUSED));
}

/// The error types of programs cannot be built here; of these the text must do.
#[test]
fn no_error_type_shows_its_source_and_returns_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for part in ["apps", "gpu-usermap", "gpunet-core", "gpunet-device", "gpunet-proxy", "utils"] {
        rust_files(&root.join(part), &mut files);
    }
    let mut types = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source file");
        // What follows an attribute is the variant that it belongs to, up to the next one.
        for variant in text.split("#[error(").skip(1) {
            let (message, fields) =
                variant.split_once(")]\n").expect("an attribute of thiserror ends its line");
            let fields = fields.split("\n}").next().unwrap_or_default();
            let shows = message.contains("{source") || message.contains("{0");
            let returns = fields.contains("#[from]")
                || fields.contains("#[source]")
                || fields.replace("r#source:", "").contains(" source:");
            assert!(!(shows && returns), "{}: {message}", file.display());
            types += 1;
        }
    }
    assert!(types > 100, "the files were found: {types}");
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the repository").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                rust_files(&path, found);
            }
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with(file!()) {
            found.push(path);
        }
    }
}

/// What a seccomp profile refuses does not succeed with less memory.
#[test]
fn a_refused_call_is_told_from_too_little_memory() {
    let failed = |errno| {
        let source = RegionError::Memfd { call: "memfd_create", source: io::Error::from_raw_os_error(errno) };
        AttachError::Region { bytes: 4096, source }
    };
    for errno in [libc::EPERM, libc::ENOSYS] {
        let said = failed(errno).to_string();
        assert!(said.contains("seccomp") && !said.contains("less ring memory"), "{said}");
        assert_eq!(failed(errno).errno(), errno);
    }
    assert!(failed(libc::EINVAL).to_string().ends_with("ask for less ring memory (setting shared_rings)"));
}

/// A copy that is not inside a buffer is an error of the call, on the CPU as on a GPU.
#[test]
fn a_copy_outside_of_a_buffer_is_an_error() {
    let attachment =
        gpunet_proxy::embed(gpunet_proxy::Config::small()).expect("a proxy").attach_cpu().expect("the CPU");
    let mut buffer = attachment.alloc(8).expect("memory");
    for (offset, len) in [(6, 4), (9, 0), (usize::MAX, 2)] {
        let outside = Err(CopyError::OutOfBounds { offset, len, size: 8 });
        assert_eq!(buffer.write(offset, &vec![1; len]), outside);
        assert_eq!(buffer.read(offset, &mut vec![1; len]), outside);
    }
    let mut bytes = [1; 8];
    assert_eq!((buffer.read(0, &mut bytes), bytes), (Ok(()), [0; 8]));
}
