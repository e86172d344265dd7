//! Compresses the kernel's PTX, which the program embeds.

fn main() -> std::io::Result<()> {
    gpunet_embed_ptx::compress("ptx/gpunet_tokens_kernel.ptx")
}
