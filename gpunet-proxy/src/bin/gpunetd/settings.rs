//! Every setting: its key, its default, and the reason for it.

use crate::args::Cli;
use crate::values::{Addresses, Filter, LogFormat, Metrics, Mode, Rc};
use gpunet_proxy::access::{Access, RingMemory};
use gpunet_proxy::config::{AUTO_THREADS, Lines, Rdma};
use gpunet_proxy::settings::CpuList;
use gpunet_proxy::{Config, files, places};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that is read if no other is named and it exists.
const FILE: &str = "/etc/gpunet/gpunetd.toml";

/// The longest file of settings: many times what all users of a machine need.
const MOST: u64 = 1 << 20;

/// Defines, from one list, the flags with their help, the keys of the file, and the effective
/// settings.
macro_rules! settings {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty, $value:literal, $env:literal, $default:expr;)+) => {
        /// Settings as one source gives them.
        #[derive(Clone, Debug, Default, clap::Args)]
        pub struct Given {
            $($(#[doc = $doc])+ #[arg(long, env = $env, value_name = $value)] $name: Option<$type>,)+
        }

        /// The effective settings.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $name: $type,)+
        }

        impl Settings {
            /// The keys.
            pub const KEYS: &[&str] = &[$(stringify!($name)),+];

            /// The keys whose values differ.
            pub fn differ(&self, other: &Self) -> Vec<&'static str> {
                let mut keys = Vec::new();
                $(if self.$name != other.$name { keys.push(stringify!($name)); })+
                keys
            }

            /// Each key and its value, as the file has it.
            fn written(&self) -> Vec<(&'static str, Result<toml::Value, toml::ser::Error>)> {
                vec![$((stringify!($name), toml::Value::try_from(&self.$name)),)+]
            }
        }

        impl Given {
            /// Takes a key of the file; false if there is no such key.
            fn take(&mut self, key: &str, value: toml::Value) -> Result<bool, toml::de::Error> {
                match key {
                    $(stringify!($name) => self.$name = Some(value.try_into()?),)+
                    _ => return Ok(false),
                }
                Ok(true)
            }
        }

        /// The value of each setting from its strongest source, and which source that is.
        fn merge(cli: &Cli, file: Given, path: &Path) -> Result<(Settings, Vec<Origin>), SettingsError> {
            let mut origins = Vec::new();
            let settings = Settings {$(
                $name: match (&cli.given.$name, file.$name) {
                    (Some(value), _) => {
                        let environment = cli.from_environment.iter().any(|id| id == stringify!($name));
                        let flag = || Origin::Flag(format!("--{}", stringify!($name).replace('_', "-")));
                        origins.push(if environment { Origin::Environment($env) } else { flag() });
                        value.clone()
                    }
                    (None, Some(value)) => {
                        origins.push(Origin::File(path.to_owned()));
                        value
                    }
                    (None, None) => {
                        origins.push(Origin::Default);
                        $default.ok_or(SettingsError::Missing(stringify!($name)))?
                    }
                },
            )+};
            Ok((settings, origins))
        }
    };
}

settings! {
    /// Where clients attach: the path of a Unix socket. Default: gpunetd.sock in $RUNTIME_DIRECTORY
    /// (systemd sets it), for root /run/gpunet/gpunetd.sock, for others gpunetd.sock in
    /// $XDG_RUNTIME_DIR, which is where clients look. Its directory is made if it is missing. A
    /// socket that systemd passes comes before it.
    listen_path: PathBuf, "PATH", "GPUNETD_LISTEN_PATH", listen_path();
    /// Mode of the socket file. Default 0666: who may attach is decided by allow_users and
    /// allow_groups, from what the kernel says of each client.
    socket_mode: Mode, "MODE", "GPUNETD_SOCKET_MODE", Some(Mode(0o666));
    /// Data threads, 1 to 16. Default 0, automatic: half the cores that the daemon may use (of
    /// cpus, if that names fewer: one for each), at least 1 and at most 16. Those without streams
    /// sleep.
    threads: usize, "N", "GPUNETD_THREADS", Some(Config::default().data_threads);
    /// CPUs that data threads are pinned to, such as "2-5,8": thread N to the Nth, from the first
    /// again where there are fewer. Default none: the scheduler knows what else the machine does.
    cpus: CpuList, "LIST", "GPUNETD_CPUS", Some(CpuList::default());
    /// How long a data thread spins after activity before it sleeps, microseconds. Default 250,
    /// longer than a client takes to come back to a connection after some others. With fewer than
    /// four cores it lets others run meanwhile.
    spin_us: u64, "US", "GPUNETD_SPIN_US", Some(Config::default().spin.as_micros() as u64);
    /// Longest sleep of a data thread that serves a GPU, whose stores raise no event, microseconds.
    /// Default 5000: under 1 % of a core.
    latency_us: u64, "US", "GPUNETD_LATENCY_US", Some(Config::default().latency.as_micros() as u64);
    /// A device that sees no sign of life for so long reports ENETDOWN, milliseconds. Default 2000.
    heartbeat_ms: u64, "MS", "GPUNETD_HEARTBEAT_MS", Some(Config::default().heartbeat.as_millis() as u64);
    /// How long a closed stream may take to send what was accepted, seconds. Default 30.
    linger_s: u64, "S", "GPUNETD_LINGER_S", Some(Config::default().linger.as_secs());
    /// Which streams between two devices have lines, in which messages of up to 256 bytes travel
    /// with their flag: auto (those at which there is a GPU), on or off; or units
    /// in their place. Default auto.
    lines: Lines, "WHICH", "GPUNETD_LINES", Some(Lines::Auto);
    /// How long the daemon waits at its end until all streams have sent what was accepted, seconds.
    /// Default 10: a restart must not take for ever because of one peer that does not read.
    drain_s: u64, "S", "GPUNETD_DRAIN_S", Some(10);
    /// Where Prometheus finds metrics, by HTTP at /metrics: an address of the loopback interface,
    /// since everyone who reaches it may read them; or off. Default off.
    metrics: Metrics, "ADDR", "GPUNETD_METRICS", Some(Metrics::Off);
    /// The RDMA stack of the rc transport: system or off. Default system: it is used if there is
    /// one.
    rc: Rc, "WHERE", "GPUNETD_RC", Some(Rc::System);
    /// IP addresses of hosts that speak rc, with commas (in the file an array): connects that leave
    /// the transport open try it there first. Default none: what was reached by rc once is
    /// remembered.
    rc_peers: Addresses, "LIST", "GPUNETD_RC_PEERS", Some(Addresses::default());
    /// How often an idle rc stream asks whether the peer's host lives, milliseconds. Default 2000.
    rc_keepalive_ms: u64, "MS", "GPUNETD_RC_KEEPALIVE_MS", Some(Config::default().rc_keepalive.as_millis() as u64);
    /// What is logged: error, warn, info, debug, trace, or MODULE=LEVEL with commas. Default info:
    /// what an operator does or has to know, nothing per connection.
    log: Filter, "FILTER", "GPUNETD_LOG", "info".parse().ok();
    /// How a line of the log is written, to standard error: text or json. Default text.
    log_format: LogFormat, "FORMAT", "GPUNETD_LOG_FORMAT", Some(LogFormat::Text);
}

/// With a socket from systemd the path is not used, and a user without a directory needs none.
fn listen_path() -> Option<PathBuf> {
    let passed = || std::env::var_os("LISTEN_FDS").map(|_| places::SYSTEM.into());
    places::listen_path().or_else(passed)
}

/// The settings that a reload changes while the daemon runs. (The tables of [`Access`] are others.)
pub const RELOADED: [&str; 1] = ["drain_s"];

/// Longest times that are not a slip: an hour.
const HOUR_S: u64 = 3600;

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default.
    Default,
    /// The file.
    File(PathBuf),
    /// A variable.
    Environment(&'static str),
    /// The command line.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => path.display().fmt(f),
            Self::Environment(variable) => write!(f, "${variable}"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// Settings, and where they come from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// Who may attach.
    pub access: Access,
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// Where each setting comes from, in the order of [`Settings::KEYS`].
    origins: Vec<Origin>,
}

/// Why settings are invalid. One line each.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        r#source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{path}, line {line}: {message}", path = path.display())]
    Syntax {
        /// Which.
        path: PathBuf,
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A key that does not exist.
    #[error("{path}: there is no setting {key:?}; the settings are {known}", path = path.display())]
    Unknown {
        /// Which file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Those that exist.
        known: String,
    },
    /// A value in the file that is invalid for its key.
    #[error("{path}: {key}: {message}", path = path.display())]
    Value {
        /// Which file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What is wrong.
        message: String,
    },
    /// A value out of its range.
    #[error("{key} = {value} (from {origin}): expected {expected}")]
    Range {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Where it comes from.
        origin: Origin,
        /// What would be accepted.
        expected: String,
    },
    /// A setting without a default.
    #[error(
        "{0} has no default here, because neither $RUNTIME_DIRECTORY nor $XDG_RUNTIME_DIR is set; give --listen-path"
    )]
    Missing(&'static str),
}

/// Reads the file and puts environment and flags above it.
///
/// # Errors
/// The first thing that is wrong.
pub fn load(cli: &Cli) -> Result<Loaded, SettingsError> {
    let named = cli.config.clone();
    let path = named.or_else(|| Path::new(FILE).exists().then(|| FILE.into()));
    let (given, access) = match &path {
        Some(path) => {
            let read = files::read_text(path, MOST);
            let text = read.map_err(|source| SettingsError::Read { path: path.clone(), source })?;
            parse(&text, path)?
        }
        None => Default::default(),
    };
    let (settings, origins) = merge(cli, given, path.as_deref().unwrap_or(Path::new(FILE)))?;
    let loaded = Loaded { settings, access, file: path, origins };
    loaded.check()?;
    Ok(loaded)
}

/// Parses a file into settings and the tables of [`Access`].
fn parse(text: &str, path: &Path) -> Result<(Given, Access), SettingsError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| SettingsError::Syntax {
        path: path.to_owned(),
        line: 1 + error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count()),
        message: one_line(error.message()),
    })?;
    let value_error = |key: &str, error: toml::de::Error| SettingsError::Value {
        path: path.to_owned(),
        key: key.to_owned(),
        message: one_line(error.message()),
    };
    let (mut given, mut access) = (Given::default(), toml::Table::new());
    for (key, value) in table {
        if Access::KEYS.contains(&key.as_str()) {
            access.insert(key, value);
        } else if !given.take(&key, value).map_err(|error| value_error(&key, error))? {
            let known = [Settings::KEYS, &Access::KEYS].concat().join(", ");
            return Err(SettingsError::Unknown { path: path.to_owned(), key, known });
        }
    }
    // One table at a time, for an error to name it.
    for (key, value) in &access {
        let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
        alone.try_into::<Access>().map_err(|error| value_error(key, error))?;
    }
    let access = access.try_into().map_err(|error| value_error("access", error))?;
    Ok((given, access))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Loaded {
    fn check(&self) -> Result<(), SettingsError> {
        let settings = &self.settings;
        for (key, value) in [("drain_s", settings.drain_s), ("linger_s", settings.linger_s)] {
            if value > HOUR_S {
                return Err(self.range(key, value, "at most an hour, 3600"));
            }
        }
        if settings.spin_us > 1_000_000 {
            return Err(self.range("spin_us", settings.spin_us, "at most a second, 1000000"));
        }
        if let Metrics::At(addr) = settings.metrics
            && !addr.ip().is_loopback()
        {
            let expected = "an address of the loopback interface; for other hosts put a server before it";
            return Err(self.range("metrics", addr, expected));
        }
        if let Err(error) = rustix::net::SocketAddrUnix::new(&settings.listen_path) {
            let path = settings.listen_path.display();
            return Err(self.range("listen_path", path, &format!("a path of at most 107 bytes ({error})")));
        }
        settings.config().check().map_err(|bad| {
            let key = match bad.setting {
                "data_threads" => "threads",
                "heartbeat (ms)" => "heartbeat_ms",
                "rc_keepalive (ms)" => "rc_keepalive_ms",
                "latency (us)" => "latency_us",
                other => other,
            };
            self.range(key, bad.value, bad.expected)
        })
    }

    fn range(&self, key: &'static str, value: impl ToString, expected: &str) -> SettingsError {
        let at = Settings::KEYS.iter().position(|known| *known == key);
        let origin = at.and_then(|at| self.origins.get(at)).cloned().unwrap_or(Origin::Default);
        SettingsError::Range { key, value: value.to_string(), origin, expected: expected.to_owned() }
    }
}

impl Settings {
    /// The proxy's configuration.
    pub fn config(&self) -> Config {
        Config {
            data_threads: self.threads,
            cpus: self.cpus.0.clone(),
            spin: Duration::from_micros(self.spin_us),
            latency: Duration::from_micros(self.latency_us),
            heartbeat: Duration::from_millis(self.heartbeat_ms),
            linger: Duration::from_secs(self.linger_s),
            lines: self.lines,
            rdma: match self.rc {
                Rc::System => Rdma::System,
                Rc::Off => Rdma::Off,
            },
            rc_peers: self.rc_peers.0.clone(),
            rc_keepalive: Duration::from_millis(self.rc_keepalive_ms),
            ..Config::default()
        }
    }
}

/// The effective configuration as a file, with the origin of each value.
impl fmt::Display for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((key, value), origin) in self.settings.written().into_iter().zip(&self.origins) {
            let value = value.map_err(|_| fmt::Error)?;
            match key {
                "threads" if self.settings.threads == AUTO_THREADS => {
                    let here = self.settings.config().thread_count();
                    line(f, key, &value, &format_args!("{origin}; automatic: {here} here"))?;
                }
                _ => line(f, key, &value, origin)?,
            }
        }
        // Who may attach: the keys without tables, the limits with all defaults, the other tables.
        let mut access = toml::Table::try_from(&self.access).map_err(|_| fmt::Error)?;
        let (limits, origin) =
            (access.remove("limits"), self.file.clone().map_or(Origin::Default, Origin::File));
        for key in ["allow_users", "allow_groups"] {
            let value = access.remove(key).unwrap_or(toml::Value::Array(Vec::new()));
            let empty = value.as_array().is_some_and(Vec::is_empty);
            line(f, key, &value, if empty { &Origin::Default } else { &origin })?;
        }
        f.write_str("\n[limits]\n")?;
        for (key, value) in toml::Table::try_from(self.access.limits()).map_err(|_| fmt::Error)? {
            let given = limits.as_ref().is_some_and(|limits| limits.get(&key).is_some());
            line(f, &key, &value, if given { &origin } else { &Origin::Default })?;
        }
        if !access.is_empty() {
            write!(f, "\n# {origin}\n{}", toml::to_string(&access).map_err(|_| fmt::Error)?)?;
        }
        write!(f, "\n# all users together: ring_memory = {}", RingMemory::here().limit())?;
        writeln!(f, " (what the machine and the memory cgroup of this process allow)")?;
        if let Some(shortage) = memory_shortage() {
            writeln!(f, "# {shortage}")?;
        }
        Ok(())
    }
}

/// Returns a warning if this process has too little memory for one program with the default
/// settings.
pub fn memory_shortage() -> Option<String> {
    let (limit, usual) = (RingMemory::here().limit(), Config::default().shared_rings);
    (limit < usual).then(|| {
        format!(
            "programs may have {limit} bytes of ring memory together, and one with the default settings asks for {usual}: \
             raise the limit of this process's memory cgroup, or have programs ask for less (shared_rings)"
        )
    })
}

fn line(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    value: &toml::Value,
    origin: &dyn fmt::Display,
) -> fmt::Result {
    writeln!(f, "{:<40} # {origin}", format!("{key} = {value}"))
}

#[cfg(test)]
mod tests;
