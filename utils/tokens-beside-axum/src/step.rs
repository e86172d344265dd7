//! The model on the GPU: its memory, and a CUDA graph for each size of a step.

use crate::plan::{Plan, Row, TILE_ROWS, Tile};
use cudarc::driver::sys::{CU_MEMHOSTALLOC_DEVICEMAP, is_culib_present};
use cudarc::driver::sys::{CUctx_flags, CUdevice_attribute, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaGraph, CudaSlice, CudaStream, LaunchConfig, PinnedHostSlice, PushKernelArg,
};
use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

/// What nvrtc compiles at the start.
const SOURCE: &str = include_str!("model.cu");
/// The weights of gpunet-tokens, the same file.
const WEIGHTS: &[u8] = include_bytes!("../../../apps/tokens/model/weights.safetensors");
/// Threads of a block, as in `model.cu`.
const THREADS: u32 = 512;
/// Numbers of the keys and values of a sequence.
const SEQUENCE: usize = 3 * 2 * 128 * 512;

/// How the engine's thread waits for the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wait {
    /// It polls: the shortest step, and a whole core.
    Spin,
    /// It polls, and lets other threads run between.
    Yield,
    /// It sleeps until the GPU interrupts: some microseconds more for each step.
    Block,
}

/// The model, ready to compute steps.
pub struct Model {
    stream: Arc<CudaStream>,
    /// For 1, 2, 4, ... tiles.
    graphs: Vec<CudaGraph>,
    tiles: PinnedHostSlice<Tile>,
    rows: PinnedHostSlice<Row>,
    next: PinnedHostSlice<u8>,
    /// Blocks that the GPU runs at a time.
    pub blocks: usize,
    /// What `cuDeviceGetName` says.
    pub name: String,
    // What the graphs use.
    _cache: CudaSlice<f32>,
    _weights: CudaSlice<u8>,
    _kernel: CudaFunction,
}

impl Model {
    /// Loads the model onto a GPU. `code` is PTX or a cubin of `model.cu` that was made before.
    pub fn load(
        gpu: usize,
        sequences: usize,
        wait: Wait,
        code: Option<&Path>,
    ) -> Result<Self, Box<dyn Error>> {
        // SAFETY: it opens the driver's library, which has no conditions.
        if !unsafe { is_culib_present() } {
            return Err("there is no CUDA driver here (libcuda.so.1): this program needs a GPU".into());
        }
        let context = CudaContext::new(gpu).map_err(|error| format!("cannot use GPU {gpu}: {error}"))?;
        // One stream uses all memory, so no events are needed between its users; in a graph they
        // would be nodes.
        // SAFETY: as said.
        unsafe { context.disable_event_tracking() };
        context.set_flags(match wait {
            Wait::Spin => CUctx_flags::CU_CTX_SCHED_SPIN,
            Wait::Yield => CUctx_flags::CU_CTX_SCHED_YIELD,
            Wait::Block => CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC,
        })?;
        let kernel = context.load_module(compile(&context, code)?)?.load_function("step")?;
        let stream = context.new_stream()?;
        let weights = stream.clone_htod(&weights()?)?;
        let cache = stream.alloc_zeros::<f32>(sequences * SEQUENCE)?;
        let rows = sequences * TILE_ROWS;
        // SAFETY: zeros are written below.
        let mut pinned = unsafe {
            (
                context.alloc_pinned_with_flags::<Tile>(sequences, CU_MEMHOSTALLOC_DEVICEMAP)?,
                context.alloc_pinned_with_flags::<Row>(rows, CU_MEMHOSTALLOC_DEVICEMAP)?,
                context.alloc_pinned_with_flags::<u8>(rows, CU_MEMHOSTALLOC_DEVICEMAP)?,
            )
        };
        pinned.0.as_mut_slice()?.fill(Tile::default());
        pinned.1.as_mut_slice()?.fill(Row::default());
        pinned.2.as_mut_slice()?.fill(0);
        let (tiles, rows, next) = pinned;
        stream.synchronize()?;
        let multiprocessors =
            context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let mut model = Self {
            graphs: Vec::new(),
            blocks: usize::try_from(multiprocessors)?,
            name: context.name()?,
            stream,
            tiles,
            rows,
            next,
            _cache: cache,
            _weights: weights,
            _kernel: kernel,
        };
        let mut size = 1;
        loop {
            let size_here = size.min(sequences);
            let graph = model.capture(size_here)?;
            graph.upload()?;
            // The first launch of a graph is slower. All tiles are empty.
            graph.launch()?;
            model.stream.synchronize()?;
            model.graphs.push(graph);
            if size >= sequences {
                return Ok(model);
            }
            size *= 2;
        }
    }

    /// Makes the graph of a step with so many tiles.
    fn capture(&self, tiles: usize) -> Result<CudaGraph, Box<dyn Error>> {
        let shape = LaunchConfig {
            grid_dim: (u32::try_from(tiles)?, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        // Memory that is pinned for the device has one address for both.
        let tiles = self.tiles.as_ptr()? as u64;
        let rows = self.rows.as_ptr()? as u64;
        let next = self.next.as_ptr()? as u64;
        self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let mut launch = self.stream.launch_builder(&self._kernel);
        launch.arg(&self._weights).arg(&self._cache).arg(&tiles).arg(&rows).arg(&next);
        // SAFETY: the parameters are those of `step` in model.cu, and `self` keeps what they name
        // as long as its graphs. The kernel alone writes the cache.
        let launched = unsafe { launch.launch(shape) };
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0))?;
        launched?;
        graph.ok_or_else(|| "the capture of a step gave no graph".into())
    }

    /// Computes a step by one launch of a graph. Returns the token after each row of the plan.
    pub fn step(&mut self, plan: &Plan) -> Result<&[u8], Box<dyn Error>> {
        let (tiles, rows) = (plan.tiles(), plan.rows());
        if tiles.is_empty() {
            return Ok(&[]);
        }
        let graph = tiles.len().next_power_of_two().trailing_zeros() as usize;
        let launched = tiles.len().next_power_of_two().min(self.tiles.len());
        let to = self.tiles.as_mut_slice()?;
        to[..tiles.len()].copy_from_slice(tiles);
        to[tiles.len()..launched].fill(Tile::default());
        self.rows.as_mut_slice()?[..rows.len()].copy_from_slice(rows);
        self.graphs[graph].launch()?;
        self.stream.synchronize()?;
        Ok(&self.next.as_slice()?[..rows.len()])
    }
}

fn compile(context: &Arc<CudaContext>, code: Option<&Path>) -> Result<Ptx, Box<dyn Error>> {
    if let Some(path) = code {
        return Ok(Ptx::from_file(path));
    }
    // SAFETY: it opens nvrtc's library, which has no conditions.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        return Err("there is no nvrtc here (libnvrtc.so): add the folder of CUDA's libraries to LD_LIBRARY_PATH, or \
                    make the code by `nvcc -cubin -arch=native -std=c++17 -o model.cubin src/model.cu` and name it with --code"
            .into());
    }
    let (major, minor) = context.compute_capability()?;
    let options = vec![format!("--gpu-architecture=compute_{major}{minor}"), "--std=c++17".into()];
    compile_ptx_with_opts(SOURCE, CompileOptions { options, ..CompileOptions::default() }).map_err(|error| {
        match error {
            CompileError::CompileError { log, .. } => format!("nvrtc: {}", log.to_string_lossy()).into(),
            error => format!("nvrtc: {error}").into(),
        }
    })
}

/// The matrices in the order of `model.cu`.
fn weights() -> Result<Vec<u8>, Box<dyn Error>> {
    let file = safetensors::SafeTensors::deserialize(WEIGHTS)?;
    let mut names = vec!["embedding".to_owned(), "unembedding".to_owned()];
    for layer in 0..3 {
        names.extend(["qkv", "out", "up", "down"].map(|part| format!("layers.{layer}.{part}")));
    }
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend_from_slice(file.tensor(&name)?.data());
    }
    // 557,056 halves: what `model.cu` has places for.
    if bytes.len() == 2 * 557_056 { Ok(bytes) } else { Err("the weights are those of another model".into()) }
}
