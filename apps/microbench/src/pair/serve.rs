//! The main function of a process that plays an end.

use super::child::PairEvent;
use super::end::End;
use super::task::Task;
use crate::bench::Bench;
use crate::json_lines;
use crate::outcome::Outcome;
use clap::Args;
use gpunet_proxy::Config;
use std::path::{Path, PathBuf};

/// What `end` takes. Other subcommands start it.
#[derive(Args, Clone, Debug)]
pub struct EndArgs {
    /// Which end it is, for people who read the list of processes.
    #[arg(long)]
    role: String,
    /// Where a gpunetd listens. Without it the end has plain sockets only.
    #[arg(long, value_name = "PATH")]
    attach: Option<PathBuf>,
}

/// `end`: runs the tasks that come in as lines, until there are no more.
pub fn serve(device: &str, args: &EndArgs) -> Outcome<bool> {
    let end = match &args.attach {
        None => Ok(End::plain()),
        Some(path) => attached(path, device).map(End::here),
    };
    let mut end = match end {
        Ok(end) => end,
        Err(error) => {
            report(&PairEvent::Failed(format!("{} on {device}: {error}", args.role)))?;
            return Ok(false);
        }
    };
    report(&PairEvent::Ready { name: end.name().to_owned(), gpu: end.is_gpu() })?;
    for line in std::io::stdin().lines() {
        let task: Task = serde_json::from_str(&line?)?;
        report(&match end.start(&task).and_then(|()| end.finish()) {
            Ok(words) => PairEvent::Words(words),
            Err(error) => PairEvent::Failed(error.to_string()),
        })?;
    }
    Ok(true)
}

/// A device under the daemon at `path`.
fn attached(path: &Path, device: &str) -> Outcome<Bench> {
    Bench::attach(&gpunet_proxy::attach(path, Config::default())?, device)
}

fn report(event: &PairEvent) -> Outcome<()> {
    json_lines::write(&mut std::io::stdout().lock(), event)
}
