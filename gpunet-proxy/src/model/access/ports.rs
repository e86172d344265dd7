//! A set of ports.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A set of ports, written "1024-65535,80". Port 0, which takes a free one, is always in it.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Ports;
///
/// let ports: Ports = "8000-8999,80".parse()?;
/// assert!(ports.allow(80) && ports.allow(8080) && !ports.allow(443));
/// # Ok::<(), gpunet_proxy::access::BadPorts>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    /// First and last of each range; in order, with a gap between each two.
    ranges: Vec<(u16, u16)>,
}

/// A text that is no set of ports.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Ports;
///
/// let error = "80,http".parse::<Ports>().unwrap_err();
/// assert!(error.to_string().starts_with("\"http\" in \"80,http\""));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} in {text:?} is no port and no range of ports; expected e.g. \"1024-65535,80\"")]
pub struct BadPorts {
    part: String,
    text: String,
}

impl Ports {
    /// Every port.
    #[must_use]
    pub fn all() -> Self {
        Self { ranges: vec![(0, u16::MAX)] }
    }

    /// The unprivileged ports: 1024-65535.
    #[must_use]
    pub fn unprivileged() -> Self {
        Self { ranges: vec![(1024, u16::MAX)] }
    }

    /// Returns whether `port` is in the set.
    #[must_use]
    pub fn allow(&self, port: u16) -> bool {
        port == 0 || self.ranges.iter().any(|&(first, last)| (first..=last).contains(&port))
    }

    /// The union of both sets.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.ranges.extend(&other.ranges);
        Self::of(self.ranges)
    }

    fn of(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u16, u16)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined }
    }
}

impl FromStr for Ports {
    type Err = BadPorts;

    fn from_str(text: &str) -> Result<Self, BadPorts> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (range.0 <= range.1).then_some(range)
        };
        let bad = |part: &str| BadPorts { part: part.to_owned(), text: text.to_owned() };
        parts.map(|part| range(part).ok_or_else(|| bad(part))).collect::<Result<_, _>>().map(Self::of)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

impl TryFrom<String> for Ports {
    type Error = BadPorts;

    fn try_from(text: String) -> Result<Self, BadPorts> {
        text.parse()
    }
}

impl From<Ports> for String {
    fn from(ports: Ports) -> Self {
        ports.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_come_back_in_order() {
        for (text, back) in [
            ("1024-65535,80", "80,1024-65535"),
            ("", ""),
            (" 5 , 6-8,7-9,10", "5-10"),
            ("0-65535,65535", "0-65535"),
            ("3,1", "1,3"),
        ] {
            assert_eq!(text.parse::<Ports>().unwrap().to_string(), back);
        }
        for text in ["x", "1-", "-1", "9-8", "65536", "1;2"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_edges_of_a_range_are_in_it() {
        let ports: Ports = "1024-2000,80".parse().unwrap();
        let allowed = [0, 80, 1024, 2000].map(|port| ports.allow(port));
        let refused = [1, 79, 81, 1023, 2001, 65535].map(|port| ports.allow(port));
        assert_eq!((allowed, refused), ([true; 4], [false; 6]));
        assert!("".parse::<Ports>().unwrap().allow(0));
    }
}
