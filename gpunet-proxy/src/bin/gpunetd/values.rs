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

written_as_text!(Mode, Metrics, Filter);

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
