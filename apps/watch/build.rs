//! Compresses the kernels' PTX, which the program embeds.

fn main() -> std::io::Result<()> {
    gpunet_embed_ptx::compress("ptx/gpunet_watch_kernel.ptx")
}
