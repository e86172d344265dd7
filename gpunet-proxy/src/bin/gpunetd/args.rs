//! The command line.

use crate::settings::Given;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser};
use std::path::PathBuf;

const AFTER: &str = "\
The settings come from the file, the environment and the command line, each above the one before. In the file
they have the same names with underscores, and these tables say who may attach and hold how much:

  allow_users = [\"alice\", 1001]   # or [\"*\"]: everyone
  allow_groups = [\"gpu\"]
  [limits]                        # of everyone
  sockets = 65536                 # EMFILE beyond it
  ring_memory = 4294967296        # bytes; ENOBUFS
  registered_memory = 4294967296  # bytes; ENOBUFS
  connects_per_second = 10000     # EAGAIN
  descriptors = 30000             # ENFILE; without it half of those that all users may have
  attachments = 64
  ports = \"1024-65535\"            # EACCES; root: all of them
  admin = false                   # sees the sockets of all users
  [group.render]                  # of a group's members, above [limits]
  [user.alice]                    # of one user, above the groups

Signals: HUP reads the file again, TERM and INT drain and end, a second one ends at once.
Exit codes: 0 ended when told to, 1 cannot start, 2 bad command line.";

/// The proxy of gpunet as a daemon: one for all programs of a machine.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpunetd", version, after_help = AFTER)]
pub struct Cli {
    /// The file with the settings [default: /etc/gpunet/gpunetd.toml, if it exists].
    #[arg(long, env = "GPUNETD_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Check the settings, print their values and where each comes from, and end.
    #[arg(long)]
    pub check: bool,
    /// What the environment and the flags say.
    #[command(flatten)]
    pub given: Given,
    /// The settings among them that come from the environment.
    #[arg(skip)]
    pub from_environment: Vec<String>,
}

/// Why the command line was not followed.
#[derive(Debug)]
pub enum Refusal {
    /// `--help` or `--version`: the text.
    Text(clap::Error),
    /// One line that says what is wrong.
    Wrong(String),
}

/// Reads the command line and the environment.
pub fn parse<I>(args: I) -> Result<Cli, Refusal>
where
    I: IntoIterator,
    I::Item: Into<std::ffi::OsString> + Clone,
{
    let matches = Cli::command().try_get_matches_from(args).map_err(refusal)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(refusal)?;
    let from_environment = |id: &clap::Id| {
        // Groups have an id too, and no source.
        let known = matches.try_contains_id(id.as_str()).is_ok();
        known && matches.value_source(id.as_str()) == Some(ValueSource::EnvVariable)
    };
    cli.from_environment = matches.ids().filter(|id| from_environment(id)).map(ToString::to_string).collect();
    Ok(cli)
}

/// Makes one line of clap's message: its first paragraph without the word in front.
fn refusal(error: clap::Error) -> Refusal {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Refusal::Text(error);
    }
    let text = error.to_string();
    let first = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let line = first.collect::<Vec<_>>().join(" ");
    Refusal::Wrong(line.strip_prefix("error: ").unwrap_or(&line).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(args: &[&str]) -> String {
        match parse(std::iter::once("gpunetd").chain(args.iter().copied())) {
            Err(Refusal::Wrong(line)) => line,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn the_command_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_refusal_is_one_line_that_names_the_reason() {
        for (args, word) in [
            (&["--threads", "many"][..], "--threads"),
            (&["--frobnicate"], "--frobnicate"),
            (&["file"], "file"),
            (&["--socket-mode", "0999"], "octal"),
            (&["--metrics", "here"], "IP:PORT"),
            (&["--rc", "maybe"], "system, off"),
            (&["--log", "gpunet=loudly"], "filter"),
            (&["--log-format", "xml"], "text, json"),
            (&["--cpus", "3-1"], "2-5,8"),
            (&["--rc-peers", "name"], "IP address"),
        ] {
            let line = wrong(args);
            assert!(line.contains(word) && !line.contains('\n'), "{args:?}: {line}");
        }
    }
}
