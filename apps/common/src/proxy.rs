//! Which proxy is used.

use crate::cli::{Transport, UsageError};
use clap::builder::{OsStringValueParser, TypedValueParser};
use gpunet_proxy::config::Lines;
use gpunet_proxy::{Config, DaemonError, EmbedError, Proxy, attach, embed};
use std::path::PathBuf;

/// `--daemon`, for a program's own arguments to flatten.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ProxyArgs {
    /// Use the gpunetd that listens at PATH. Without it a proxy runs in this process.
    // Clap's own parser of paths rejects an empty one.
    #[arg(long, env = "GPUNET_DAEMON", value_name = "PATH", hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub daemon: Option<PathBuf>,
    /// Which streams have lines, in which small messages carry their own flags: auto (those with a
    /// GPU at one end), on or off; or units, which take their place in kernels of GPUs that are
    /// compiled for them. A daemon has a setting of its own.
    #[arg(long, env = "GPUNET_LINES", value_name = "WHICH", hide_env_values = true)]
    pub lines: Option<Lines>,
    /// Data threads of the proxy in this process, 1 to 16: each keeps a core busy while its streams
    /// are [default: the program's; a daemon has a setting of its own].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub data_threads: Option<u8>,
}

/// Why there is no proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// No proxy could be started in this process.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// The daemon that was asked for cannot be used.
    #[error("--daemon: {0}")]
    Daemon(DaemonError),
}

impl ProxyArgs {
    /// Returns whether a daemon was asked for. (An empty variable means none, as usual in a shell.)
    #[must_use]
    pub fn names_a_daemon(&self) -> bool {
        self.daemon.as_ref().is_some_and(|path| !path.as_os_str().is_empty())
    }

    /// Rejects the peer transport in a process with a proxy of its own, which can reach no other
    /// process. `otherwise` is the command that works without a daemon.
    ///
    /// # Errors
    /// The line for the user.
    pub fn can_reach_others(&self, transport: Transport, otherwise: &str) -> Result<(), UsageError> {
        if transport == Transport::Peer && !self.names_a_daemon() {
            return Err(UsageError::Invalid(format!(
                "--transport peer needs both ends under one proxy: add --daemon PATH, or {otherwise}"
            )));
        }
        Ok(())
    }

    /// Attaches to the daemon that was asked for, or starts a proxy. It never falls back from a
    /// named daemon to a proxy of its own.
    ///
    /// # Errors
    /// [`ProxyError`].
    pub fn open(&self, config: Config) -> Result<Proxy, ProxyError> {
        match &self.daemon {
            Some(path) if self.names_a_daemon() => attach(path, config).map_err(ProxyError::Daemon),
            _ => Ok(embed(Config {
                lines: self.lines.unwrap_or(config.lines),
                data_threads: self.data_threads.map_or(config.data_threads, usize::from),
                ..config
            })?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        proxy: ProxyArgs,
    }

    #[test]
    fn an_empty_name_is_none() {
        use clap::Parser;
        let named = |args: &[&str]| Program::parse_from(args).proxy.names_a_daemon();
        assert!(!named(&["program", "--daemon", ""]));
        assert!(named(&["program", "--daemon", "/run/x"]));
    }

    #[test]
    fn a_proxy_has_the_data_threads_that_were_asked_for() {
        use clap::Parser;
        let parse = |number: &str| Program::try_parse_from(["program", "--data-threads", number]);
        let args = parse("3").unwrap().proxy;
        let own = ProxyArgs { daemon: None, ..args };
        assert_eq!(own.open(Config::small()).unwrap().snapshot().unwrap().threads.len(), 3);
        assert!(parse("0").is_err() && parse("17").is_err());
    }

    #[test]
    fn a_daemon_that_was_asked_for_is_not_done_without() {
        let args = ProxyArgs { daemon: Some("/nonexistent/gpunetd.sock".into()), ..ProxyArgs::default() };
        let error = args.open(Config::small()).unwrap_err().to_string();
        assert!(error.starts_with("--daemon: no daemon at /nonexistent/gpunetd.sock"), "{error}");
        let args = ProxyArgs { daemon: Some("".into()), ..ProxyArgs::default() };
        let proxy = args.open(Config::small()).unwrap();
        assert!(proxy.daemon().is_none());
    }
}
