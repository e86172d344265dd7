//! Settings as text: the keys of gpunetd's file that concern a proxy, and those that a program
//! decides.

use super::config::{BadConfig, Config, Lines, Rdma};
use gpu_usermap::placement::{PlacementChoice, UnknownPlacement};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// Why a text is no [`Config`]. One line each.
///
/// # Examples
/// ```
/// use gpunet_proxy::Config;
///
/// let error = Config::from_toml("sockets = 64\nshards = 2").unwrap_err();
/// assert!(error.to_string().starts_with("settings, line 2: unknown field `shards`, expected one of `sockets`"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// It is no TOML, or has an unknown key, or a value of another type.
    #[error("settings, line {line}: {message}")]
    Text {
        /// Where, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// A value is out of its range.
    #[error(transparent)]
    Value(#[from] BadConfig),
}

/// The keys. What is not given stays as it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Given {
    sockets: Option<u32>,
    controls: Option<u32>,
    shared_rings: Option<u64>,
    device_rings: Option<u64>,
    threads: Option<usize>,
    cpus: Option<CpuList>,
    spin_us: Option<u64>,
    latency_us: Option<u64>,
    heartbeat_ms: Option<u64>,
    linger_s: Option<u64>,
    rc: Option<Rc>,
    placement: Option<Placed>,
    lines: Option<Lines>,
    rc_peers: Option<Vec<IpAddr>>,
    rc_keepalive_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rc {
    System,
    Off,
}

#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
struct Placed(PlacementChoice);

impl TryFrom<String> for Placed {
    type Error = UnknownPlacement;

    fn try_from(text: String) -> Result<Self, UnknownPlacement> {
        text.parse().map(Self)
    }
}

fn put<T>(to: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *to = given;
    }
}

impl Config {
    /// Reads settings from TOML, above the defaults; an empty text is [`Config::default`].
    ///
    /// | key | field |
    /// |---|---|
    /// | `sockets`, `controls`, `shared_rings`, `device_rings` (bytes) | those of the same name |
    /// | `threads`, `cpus` ("2-5,8") | `data_threads`, `cpus` |
    /// | `spin_us`, `latency_us`, `heartbeat_ms`, `linger_s`, `rc_keepalive_ms` | `spin`, `latency`, `heartbeat`, `linger`, `rc_keepalive` |
    /// | `rc` ("system", "off"), `rc_peers` (an array of addresses) | `rdma`, `rc_peers` |
    /// | `placement` ("auto", "pinned", "dma-buf", "peer-mem") | `placement` |
    /// | `lines` ("auto", "on", "off", "units") | `lines` |
    ///
    /// # Errors
    /// [`SettingsError`] says in which line, and what is expected there. The result is checked as
    /// by [`Config::check`].
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::Config;
    ///
    /// let config = Config::from_toml("sockets = 1024\nshared_rings = 16_777_216\nrc = 'off'")?;
    /// assert_eq!((config.sockets, config.shared_rings), (1024, 16 << 20));
    /// # Ok::<(), gpunet_proxy::settings::SettingsError>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, SettingsError> {
        let given: Given = toml::from_str(text).map_err(|error| {
            let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            SettingsError::Text { line: 1 + before.matches('\n').count(), message }
        })?;
        let mut config = Self::default();
        put(&mut config.sockets, given.sockets);
        put(&mut config.controls, given.controls);
        put(&mut config.shared_rings, given.shared_rings);
        put(&mut config.device_rings, given.device_rings);
        put(&mut config.data_threads, given.threads);
        put(&mut config.cpus, given.cpus.map(|cpus| cpus.0));
        put(&mut config.spin, given.spin_us.map(Duration::from_micros));
        put(&mut config.latency, given.latency_us.map(Duration::from_micros));
        put(&mut config.heartbeat, given.heartbeat_ms.map(Duration::from_millis));
        put(&mut config.linger, given.linger_s.map(Duration::from_secs));
        if matches!(given.rc, Some(Rc::Off)) {
            config.rdma = Rdma::Off;
        }
        put(&mut config.placement, given.placement.map(|placed| placed.0));
        put(&mut config.lines, given.lines);
        put(&mut config.rc_peers, given.rc_peers);
        put(&mut config.rc_keepalive, given.rc_keepalive_ms.map(Duration::from_millis));
        config.check().map_err(|bad| as_given(&config, bad))?;
        Ok(config)
    }
}

/// Names the setting by its key, with the value in the key's unit.
fn as_given(config: &Config, bad: BadConfig) -> BadConfig {
    let (setting, value) = match bad.setting {
        "data_threads" => ("threads", bad.value),
        "spin (us)" => ("spin_us", bad.value),
        "latency (us)" => ("latency_us", bad.value),
        "heartbeat (ms)" => ("heartbeat_ms", bad.value),
        "linger (ms)" => ("linger_s", config.linger.as_secs()),
        "rc_keepalive (ms)" => ("rc_keepalive_ms", bad.value),
        same => (same, bad.value),
    };
    BadConfig { setting, value, ..bad }
}

/// CPUs, in the order they are given, with the text form "2-5,8"; empty: none.
///
/// # Examples
/// ```
/// use gpunet_proxy::settings::CpuList;
///
/// assert_eq!("2-5,8".parse(), Ok(CpuList(vec![2, 3, 4, 5, 8])));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range: (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            // No machine has more, and a list of billions is a slip.
            (range.0 <= range.1 && range.1 < 1 << 16).then_some(range.0..=range.1)
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let ranges: Option<Vec<_>> = parts.map(range).collect();
        let ranges = ranges
            .ok_or_else(|| format!("{text:?}: expected numbers of CPUs and ranges such as \"2-5,8\""))?;
        Ok(Self(ranges.into_iter().flatten().collect()))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        while let Some((&first, _)) = rest.split_first() {
            let count = rest.iter().zip(first..).take_while(|(cpu, next)| *cpu == next).count();
            let comma = if rest.len() == self.0.len() { "" } else { "," };
            if count == 1 {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{}", first + count - 1)?;
            }
            rest = &rest[count..];
        }
        Ok(())
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(list: CpuList) -> Self {
        list.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_usermap::placement::Placement;

    #[test]
    fn cpus_keep_their_order() {
        for (text, cpus, back) in [
            ("2-5,8", vec![2, 3, 4, 5, 8], "2-5,8"),
            ("8, 2-3", vec![8, 2, 3], "8,2-3"),
            ("1,2,3,1", vec![1, 2, 3, 1], "1-3,1"),
            ("", vec![], ""),
        ] {
            let parsed: CpuList = text.parse().unwrap();
            assert_eq!((&parsed.0, parsed.to_string().as_str()), (&cpus, back));
        }
        for text in ["x", "5-2", "-1", "0-99999999999"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_value_out_of_range_is_named_by_its_key() {
        for text in [
            "sockets = 0",
            "threads = 17",
            "spin_us = 1000001",
            "latency_us = 0",
            "heartbeat_ms = 9",
            "linger_s = 3601",
            "rc_keepalive_ms = 9",
        ] {
            let error = Config::from_toml(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("bad setting: {text}; expected ")), "{error}");
        }
    }

    #[test]
    fn every_key_sets_its_field() {
        let text = "
            sockets = 7
            controls = 8
            shared_rings = 65536
            device_rings = 131072
            threads = 3
            cpus = '0'
            spin_us = 9
            latency_us = 10
            heartbeat_ms = 11
            linger_s = 12
            rc = 'off'
            placement = 'pinned'
            rc_peers = ['192.0.2.1', '2001:db8::1']
            rc_keepalive_ms = 13
        ";
        let config = Config::from_toml(text).unwrap();
        assert_eq!((config.sockets, config.controls), (7, 8));
        assert_eq!((config.shared_rings, config.device_rings), (65536, 131_072));
        assert_eq!((config.data_threads, config.cpus), (3, vec![0]));
        assert_eq!((config.spin, config.latency), (Duration::from_micros(9), Duration::from_micros(10)));
        assert_eq!((config.heartbeat, config.linger), (Duration::from_millis(11), Duration::from_secs(12)));
        assert!(matches!(config.rdma, Rdma::Off));
        assert_eq!(config.placement, PlacementChoice::Only(Placement::Pinned));
        assert_eq!((config.rc_peers.len(), config.rc_keepalive), (2, Duration::from_millis(13)));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for (text, part) in [
            ("sockets = 70000", "bad setting: sockets = 70000; expected 1 to 65536"),
            ("\nsockets = 'x'", "settings, line 2: invalid type: string"),
            ("sockets = ", "settings, line 1: "),
            ("cpus = '5-2'", "expected numbers of CPUs"),
            ("rc = 'maybe'", "unknown variant `maybe`"),
            ("placement = 'gpu'", "gpu"),
        ] {
            let error = Config::from_toml(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{text:?}: {error}");
        }
    }
}
