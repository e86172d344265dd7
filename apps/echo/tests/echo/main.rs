//! The built program, end to end: no GPU, no root, no network beyond loopback.
//!
//! | module | what is run |
//! |---|---|
//! | `demo` | `gpunet-echo --device cpu`, both transports |
//! | `server` | `gpunet-echo server` against std's TcpStream, nc and socat |
//! | `client` | `gpunet-echo client` against a plain TCP echo server, and against servers that fail |
//! | `command_line` | help, and bad command lines |
//! | `program`, `process` | starting, stopping and reading the program |

#[path = "../../../../gpunet-proxy/tests/support/cgroup.rs"]
mod cgroup;
mod client;
mod command_line;
mod daemon;
mod demo;
#[path = "../../../common/tests/support/process.rs"]
mod process;
mod program;
mod server;
