//! Where the members of a team meet.

use super::error::TeamError;
use crate::os::same_host::random_bytes;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;

/// The identity of a team: the address where its members meet, and a number that no other team has.
///
/// It can be printed and parsed, so that it can be passed to the other members in any way. Any
/// program that knows it can join.
///
/// # Examples
/// ```
/// use gpunet_proxy::team::TeamId;
///
/// let id = TeamId::new("10.1.0.2:7000".parse()?)?;
/// assert_eq!(id.to_string().parse::<TeamId>()?, id);
/// assert_ne!(TeamId::new(id.address())?, id, "another team at the same address");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TeamId {
    address: SocketAddr,
    nonce: u128,
}

impl TeamId {
    /// Makes the id of a new team that meets at `address`, where member 0 will listen.
    ///
    /// # Errors
    /// [`TeamError::Io`], when the system has no random numbers.
    pub fn new(address: SocketAddr) -> Result<Self, TeamError> {
        let nonce = random().map_err(TeamError::io("cannot read random numbers"))?;
        Ok(Self { address, nonce })
    }

    /// Returns the id of the team with this `name`: the same name gives the same id.
    pub(super) fn named(address: SocketAddr, name: &str) -> Self {
        // FNV-1a with 128 bits: different names give different ids. The id need not be hard to
        // guess, because the name is not a secret.
        let mix =
            |hash: u128, byte: u8| (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        Self { address, nonce: name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, mix) }
    }

    /// Returns where member 0 listens.
    #[must_use]
    pub const fn address(self) -> SocketAddr {
        self.address
    }

    pub(super) const fn nonce(self) -> u128 {
        self.nonce
    }
}

/// Returns a number that nobody can guess.
fn random() -> io::Result<u128> {
    let mut bytes = [0; 16];
    random_bytes(&mut bytes)?;
    Ok(u128::from_le_bytes(bytes))
}

impl fmt::Display for TeamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:032x}", self.address, self.nonce)
    }
}

/// Leaves out the nonce, which is for members only.
impl fmt::Debug for TeamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TeamId({})", self.address)
    }
}

/// The error of a text that is not a [`TeamId`].
///
/// # Examples
/// ```
/// use gpunet_proxy::team::TeamId;
///
/// let error = "10.1.0.2:7000".parse::<TeamId>().unwrap_err();
/// assert_eq!(error.to_string(), "`10.1.0.2:7000` is no team id: it looks like 127.0.0.1:7000/ and 32 hexadecimal digits");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no team id: it looks like 127.0.0.1:7000/ and 32 hexadecimal digits")]
pub struct InvalidTeamId {
    text: String,
}

impl FromStr for TeamId {
    type Err = InvalidTeamId;

    fn from_str(text: &str) -> Result<Self, InvalidTeamId> {
        let parse = || {
            let (address, nonce) = text.rsplit_once('/')?;
            let is_hex = nonce.len() == 32 && nonce.bytes().all(|byte| byte.is_ascii_hexdigit());
            let nonce = is_hex.then(|| u128::from_str_radix(nonce, 16).ok()).flatten()?;
            Some(Self { address: address.parse().ok()?, nonce })
        };
        parse().ok_or_else(|| InvalidTeamId { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_printed_and_parsed() {
        for address in ["127.0.0.1:1", "[::1]:65535"] {
            let id = TeamId::new(address.parse().expect("an address")).expect("random numbers");
            assert_eq!(id.to_string().parse(), Ok(id));
            assert!(!format!("{id:?}").contains(&format!("{:032x}", id.nonce)), "a log does not tell it");
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let nonce = "0".repeat(32);
        for text in [
            String::new(),
            "/".to_owned(),
            nonce.clone(),
            format!("host:1/{nonce}"),
            format!("1.2.3.4/{nonce}"),
            format!("1.2.3.4:5/{nonce}0"),
            format!("1.2.3.4:5/+{}", &nonce[1..]),
        ] {
            assert!(text.parse::<TeamId>().is_err(), "{text}");
        }
    }

    #[test]
    fn one_name_is_one_team() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        assert_eq!(TeamId::named(address, "a"), TeamId::named(address, "a"));
        assert_ne!(TeamId::named(address, "a"), TeamId::named(address, "b"));
    }
}
