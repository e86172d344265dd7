//! `gpunet-symmetric`: NVSHMEM's examples on gpunet's symmetric memory.
//!
//! | step | modules |
//! |---|---|
//! | what to do | `args` |
//! | a member | `member` (how it runs a kernel: the one module with unsafe code) |
//! | the examples | `examples` (the memory, kernels and checks of each) |
//!
//! The kernels themselves are in the package gpunet-symmetric-kernel; for a GPU their PTX is in
//! `ptx/`.
#![deny(unsafe_code)]

mod args;
mod error;
mod examples;
mod member;

use args::Args;
use error::Error;
use gpunet_app::device::load_driver;
use gpunet_proxy::device::Rank;
use gpunet_proxy::team::{Team, TeamListener, TeamOptions};
use gpunet_proxy::{Attachment, Config, Proxy};
use member::Member;
use std::process::ExitCode;

const NAME: &str = "gpunet-symmetric";

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os()) {
        Err(error) => return error.report(NAME),
        Ok(args) => args,
    };
    gpunet_app::cli::start_log();
    args.devices.iter().for_each(|&device| load_driver(device));
    let run = if args.launched { launched(&args) } else { all(&args) };
    let code = match run {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    };
    gpunet_app::cli::finish(NAME, code)
}

fn options(args: &Args) -> TeamOptions {
    TeamOptions { signals: gpunet_symmetric_kernel::signals(args.blocks), ..TeamOptions::default() }
}

fn open(args: &Args) -> Result<Proxy, Error> {
    Ok(args.proxy.open(Config::small())?)
}

fn attach(proxy: &Proxy, args: &Args, number: u32) -> Result<Attachment, Error> {
    let device = args.devices[number as usize % args.devices.len()];
    Ok(gpunet_app::device::attach(proxy, NAME, device)?)
}

/// The one member that a launcher has started.
fn launched(args: &Args) -> Result<(), Error> {
    let proxy = open(args)?;
    // Launchers number the processes of a machine, and these numbers decide which device each
    // process uses.
    let local = ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"];
    let number = local.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()).unwrap_or(0);
    let attachment = attach(&proxy, args, number)?;
    let team = Team::launched(&attachment, &options(args))?;
    serve(attachment, team, args)
}

/// All members, as threads of this process.
fn all(args: &Args) -> Result<(), Error> {
    let proxy = open(args)?;
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = TeamListener::bind(local)?;
    let id = listener.id();
    let attachments =
        (0..args.members).map(|rank| attach(&proxy, args, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut listener = Some(listener);
    std::thread::scope(|scope| {
        let start = |(rank, attachment)| {
            let listener = listener.take();
            scope.spawn(move || {
                let (size, options) = (args.members, options(args));
                let team = match listener {
                    Some(listener) => Team::lead_with(&attachment, listener, size, &options),
                    None => Team::join_with(&attachment, id, rank, size, &options),
                }?;
                serve(attachment, team, args)
            })
        };
        let threads: Vec<_> = (0..).map(Rank).zip(attachments).map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Error>>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        // If several fail, the first one gives the reason.
        threads.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
    })
}

/// Runs the examples as one member.
fn serve(attachment: Attachment, team: Team, args: &Args) -> Result<(), Error> {
    let device = attachment.device_name().to_owned();
    let member = Member::new(attachment, team, args)?;
    let (rank, size) = (member.team.rank(), member.team.size());
    for example in args.example.each() {
        examples::run(example, &member, args)?;
        gpunet_app::cli::print(&format!(
            "member {rank} of {size} on {device}: {} is right\n",
            example.name()
        ));
    }
    member.leave()
}
