//! The types of the settings: each has a text form for flags, the environment and the file.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use tracing_subscriber::EnvFilter;

/// Gives a type with a text form that form in the file.
macro_rules! written_as_text {
    ($($type:ty),*) => {$(
        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )*};
}

written_as_text!(Mode, Cpus, Metrics, Filter);

/// The mode of a file: octal, as of chmod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(pub u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o777);
        mode.map(Self).ok_or_else(|| format!("{text:?}: expected an octal mode such as \"0660\""))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

/// CPUs, in the order they are given: "2-5,8"; empty: none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(pub Vec<usize>);

impl FromStr for Cpus {
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

impl fmt::Display for Cpus {
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

/// Where metrics are served: "off", or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Metrics {
    /// Nowhere.
    Off,
    /// There, by HTTP.
    At(SocketAddr),
}

impl FromStr for Metrics {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            text => text.parse().map(Self::At).map_err(|_| {
                format!("{text:?}: expected off or IP:PORT of the loopback interface, e.g. 127.0.0.1:9464")
            }),
        }
    }
}

impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(addr) => addr.fmt(f),
        }
    }
}

/// What is logged: a filter of tracing's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Filter(String);

impl Filter {
    /// As tracing wants it.
    pub fn compile(&self) -> EnvFilter {
        EnvFilter::new(&self.0)
    }
}

impl FromStr for Filter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match EnvFilter::try_new(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(format!(
                "{text:?}: expected a filter: a level (error, warn, info, debug, trace), or MODULE=LEVEL with commas"
            )),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where the rc transport finds RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rc {
    /// The system's RDMA stack, if it has one.
    System,
    /// Nowhere.
    Off,
}

/// IP addresses: with commas, or an array in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Addresses(pub Vec<IpAddr>);

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let parsed = parts.map(|part| part.parse().map_err(|_| format!("{part:?} is no IP address")));
        parsed.collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_keep_their_order() {
        for (text, cpus, back) in [
            ("2-5,8", vec![2, 3, 4, 5, 8], "2-5,8"),
            ("8, 2-3", vec![8, 2, 3], "8,2-3"),
            ("1,2,3,1", vec![1, 2, 3, 1], "1-3,1"),
            ("", vec![], ""),
        ] {
            let parsed: Cpus = text.parse().unwrap();
            assert_eq!((&parsed.0, parsed.to_string().as_str()), (&cpus, back));
        }
        for text in ["x", "5-2", "-1", "0-99999999999"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!("660".parse::<Mode>().unwrap().to_string(), "0660");
        for text in ["8", "1777", "rw", ""] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }

    #[test]
    fn metrics_are_off_or_somewhere() {
        assert_eq!("off".parse(), Ok(Metrics::Off));
        assert_eq!("[::1]:9".parse::<Metrics>().unwrap().to_string(), "[::1]:9");
        assert!("9464".parse::<Metrics>().is_err());
    }
}
