//! Access control of the daemon: who may use it, and how much of it.
//!
//! The kernel identifies a client ([`Credentials::of_peer`]). [`Access`], read from the daemon's
//! file, gives the client's [`Limits`] or refuses it. An [`Account`] counts what all attachments of
//! a user hold together.
//!
//! | file | holds |
//! |---|---|
//! | `account` | what a user holds, and the limits on it |
//! | `ports` | a set of ports |

mod account;
mod ports;

pub use crate::os::peer::Credentials;
pub use account::{Account, Accounts, Descriptors, Held, RingMemory};
pub use ports::{BadPorts, Ports};

use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What one user may hold and do, all of the user's attachments together.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Limits;
///
/// let few = Limits { sockets: 16, ..Limits::default() };
/// assert_eq!(few.attachments, 64);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Sockets, listeners included. Default 65,536: sixteen attachments of the default 4,096.
    /// Beyond it: EMFILE.
    pub sockets: u32,
    /// Memory of attachments, bytes: their rings, and their tables of sockets (some hundred bytes
    /// for each that an attachment may have). Default 4 GiB: some fifteen attachments of the
    /// default 256 MiB. Beyond it, and beyond what the daemon's memory cgroup has for all users
    /// ([`RingMemory`]): ENOBUFS.
    pub ring_memory: u64,
    /// Memory registered with network cards, which the system locks, bytes. Default 4 GiB: all the
    /// ring memory. Beyond it: ENOBUFS.
    pub registered_memory: u64,
    /// Connects of any transport, and binds, a second; a burst may have as many as one second
    /// allows. Default 10,000: more than a real program makes, and few enough that the control
    /// thread still serves others. Calls beyond the limit get EAGAIN.
    pub connects_per_second: u32,
    /// File descriptors of the daemon: one for each socket but those of `peer` streams, two for
    /// each rc stream, three for each listener, and a few for each attachment. Default: half of
    /// what all users may have, which is the daemon's `ulimit -n` less its reserve
    /// ([`Descriptors`]). Beyond it: ENFILE.
    pub descriptors: Option<u32>,
    /// Attachments (one for each device of each process). Default 64: eight processes with eight
    /// GPUs. Beyond it the attach is refused.
    pub attachments: u32,
    /// Ports that may be bound; 0, which takes a free one, always may. Default 1024-65535, and
    /// everything for root: a daemon that runs as root must not lend its privileged ports. Others:
    /// EACCES.
    pub ports: Ports,
    /// May see the sockets of all users, not only the own. Default: root and the daemon's own user.
    pub admin: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sockets: 65_536,
            ring_memory: 4 << 30,
            registered_memory: 4 << 30,
            connects_per_second: 10_000,
            descriptors: None,
            attachments: 64,
            ports: Ports::unprivileged(),
            admin: false,
        }
    }
}

impl Limits {
    fn with(mut self, over: &Overrides) -> Self {
        fn set<T: Clone>(value: &mut T, over: Option<&T>) {
            over.into_iter().for_each(|over| value.clone_from(over));
        }
        set(&mut self.sockets, over.sockets.as_ref());
        set(&mut self.ring_memory, over.ring_memory.as_ref());
        set(&mut self.registered_memory, over.registered_memory.as_ref());
        set(&mut self.connects_per_second, over.connects_per_second.as_ref());
        if over.descriptors.is_some() {
            self.descriptors = over.descriptors;
        }
        set(&mut self.attachments, over.attachments.as_ref());
        set(&mut self.ports, over.ports.as_ref());
        set(&mut self.admin, over.admin.as_ref());
        self
    }
}

/// The limits that one table sets. Limits that it leaves out come from a more general table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Overrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    sockets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ring_memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    registered_memory: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connects_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attachments: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Ports>,
    #[serde(skip_serializing_if = "Option::is_none")]
    admin: Option<bool>,
}

impl Overrides {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The larger of two groups' limits, key by key.
    fn or_more(self, other: &Self) -> Self {
        Self {
            sockets: self.sockets.max(other.sockets),
            ring_memory: self.ring_memory.max(other.ring_memory),
            registered_memory: self.registered_memory.max(other.registered_memory),
            connects_per_second: self.connects_per_second.max(other.connects_per_second),
            descriptors: self.descriptors.max(other.descriptors),
            attachments: self.attachments.max(other.attachments),
            ports: match (self.ports, &other.ports) {
                (Some(one), Some(other)) => Some(one.and(other)),
                (one, other) => one.or_else(|| other.clone()),
            },
            admin: self.admin.max(other.admin),
        }
    }
}

/// Who may attach, with which limits; these keys of the daemon's file:
///
/// | key | what |
/// |---|---|
/// | `allow_users`, `allow_groups` | names or numbers; `"*"` among the users is everyone. Root and the daemon's own user always may; with both empty, which is the default, nobody else |
/// | `[limits]` | [`Limits`] of everyone; a key that is left out keeps its default |
/// | `[group.NAME]` | limits of the members of a group; a user in several groups gets the largest of each limit |
/// | `[user.NAME]` | limits of one user, above the groups' |
///
/// Tables of users and groups limit and do not allow. Root's ports and admin, and admin of the
/// daemon's own user, do not follow `[limits]`; tables of their own still count.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::{Access, Credentials};
///
/// let access: Access = toml::from_str("allow_users = [54321]\n[user.54321]\nsockets = 4096\n")?;
/// let who = |uid| Credentials { pid: 0, uid, gid: uid, groups: Vec::new() };
/// assert_eq!(access.limits_for(&who(54321)).map(|limits| limits.sockets), Some(4096));
/// assert_eq!(access.limits_for(&who(54322)), None, "may not attach");
/// # Ok::<(), toml::de::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Access {
    written: Written,
    /// The daemon's own user.
    own: u32,
    everyone: bool,
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
    of_users: BTreeMap<u32, Overrides>,
    of_groups: BTreeMap<u32, Overrides>,
}

/// [`Access`] as the file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Written {
    allow_users: Vec<Name>,
    allow_groups: Vec<Name>,
    #[serde(skip_serializing_if = "Overrides::is_empty")]
    limits: Overrides,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    user: BTreeMap<String, Overrides>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    group: BTreeMap<String, Overrides>,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a name or a number")]
enum Name {
    Number(u32),
    Text(String),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Why an [`Access`] is invalid.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Access;
///
/// let error = toml::from_str::<Access>("allow_users = ['no-such-user']").unwrap_err();
/// assert!(error.to_string().contains("this machine has no user"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// Nobody of that name.
    #[error("{key}: this machine has no {kind} {name:?}; use a name that `getent` knows, or a number")]
    Unknown {
        /// Where it is written.
        key: &'static str,
        /// "user" or "group".
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The system could not look a name up.
    #[error("{key}: cannot look up the {kind} {name:?}: {reason}")]
    Lookup {
        /// Where it is written.
        key: &'static str,
        /// "user" or "group".
        kind: &'static str,
        /// The name.
        name: String,
        /// The system's answer.
        reason: &'static str,
    },
    /// Two tables of one user or group.
    #[error("[{key}.{name}]: another table is of the same {key}, by name or by number; join them")]
    Twice {
        /// "user" or "group".
        key: &'static str,
        /// The second table's name.
        name: String,
    },
}

impl Default for Access {
    fn default() -> Self {
        Self {
            written: Written::default(),
            own: rustix::process::geteuid().as_raw(),
            everyone: false,
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
            of_users: BTreeMap::new(),
            of_groups: BTreeMap::new(),
        }
    }
}

impl From<Access> for Written {
    fn from(access: Access) -> Self {
        access.written
    }
}

impl TryFrom<Written> for Access {
    type Error = AccessError;

    fn try_from(written: Written) -> Result<Self, AccessError> {
        let mut access = Self::default();
        for name in &written.allow_users {
            match name {
                Name::Text(text) if text == "*" => access.everyone = true,
                name => drop(access.users.insert(user("allow_users", &name.to_string())?)),
            }
        }
        for name in &written.allow_groups {
            access.groups.insert(group("allow_groups", &name.to_string())?);
        }
        for (name, over) in &written.user {
            if access.of_users.insert(user("[user]", name)?, over.clone()).is_some() {
                return Err(AccessError::Twice { key: "user", name: name.clone() });
            }
        }
        for (name, over) in &written.group {
            if access.of_groups.insert(group("[group]", name)?, over.clone()).is_some() {
                return Err(AccessError::Twice { key: "group", name: name.clone() });
            }
        }
        access.written = written;
        Ok(access)
    }
}

fn user(key: &'static str, name: &str) -> Result<u32, AccessError> {
    let found = |name: &str| Ok(User::from_name(name)?.map(|user| Uid::as_raw(user.uid)));
    look_up(key, "user", name, found)
}

fn group(key: &'static str, name: &str) -> Result<u32, AccessError> {
    let found = |name: &str| Ok(Group::from_name(name)?.map(|group| Gid::as_raw(group.gid)));
    look_up(key, "group", name, found)
}

fn look_up(
    key: &'static str,
    kind: &'static str,
    name: &str,
    by_name: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<u32, AccessError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match by_name(name) {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(AccessError::Unknown { key, kind, name: name.to_owned() }),
        Err(errno) => Err(AccessError::Lookup { key, kind, name: name.to_owned(), reason: errno.desc() }),
    }
}

impl Access {
    /// Its keys in the daemon's file.
    pub const KEYS: [&'static str; 5] = ["allow_users", "allow_groups", "limits", "user", "group"];

    /// The limits of users that are in no table of users or groups.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits::default().with(&self.written.limits)
    }

    /// The limits of a client; `None` if it may not attach.
    #[must_use]
    pub fn limits_for(&self, who: &Credentials) -> Option<Limits> {
        let (root, own) = (who.uid == 0, who.uid == self.own);
        let named = || self.users.contains(&who.uid) || self.groups.iter().any(|&group| who.is_in(group));
        if !(root || own || self.everyone || named()) {
            return None;
        }
        let mut limits = self.limits();
        if root {
            limits.ports = Ports::all();
        }
        limits.admin |= root || own;
        let groups = self.of_groups.iter().filter(|(group, _)| who.is_in(**group));
        let groups = groups.fold(Overrides::default(), |sum, (_, over)| sum.or_more(over));
        limits = limits.with(&groups);
        Some(self.of_users.get(&who.uid).map_or(limits.clone(), |over| limits.with(over)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str) -> Access {
        toml::from_str(text).unwrap()
    }

    fn refusal(text: &str) -> String {
        toml::from_str::<Access>(text).unwrap_err().to_string()
    }

    fn who(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials { pid: 1, uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn without_rules_only_root_and_the_daemons_user_may_attach() {
        let access = Access { own: 77, ..Access::default() };
        assert_eq!(access.limits_for(&who(1000, 1000, &[])), None);
        let own = access.limits_for(&who(77, 77, &[])).unwrap();
        assert_eq!(own, Limits { admin: true, ..Limits::default() });
        assert!(!own.ports.allow(80) && own.ports.allow(0));
        let root = access.limits_for(&who(0, 0, &[])).unwrap();
        assert!(root.ports.allow(80) && root.admin);
    }

    #[test]
    fn users_and_groups_are_names_or_numbers() {
        let access = access("allow_users = [4001, \"4002\", \"nobody\"]\nallow_groups = [\"daemon\", 4004]");
        let nobody = User::from_name("nobody").unwrap().unwrap().uid.as_raw();
        let daemon = Group::from_name("daemon").unwrap().unwrap().gid.as_raw();
        for client in [
            who(4001, 9, &[]),
            who(4002, 9, &[]),
            who(nobody, 9, &[]),
            who(9, 4004, &[]),
            who(9, 9, &[8, daemon]),
        ] {
            assert!(access.limits_for(&client).is_some(), "{client:?}");
        }
        assert_eq!(access.limits_for(&who(4003, 4001, &[4002])), None, "a group's number is no user's");
    }

    #[test]
    fn a_star_is_everyone_and_brings_no_privilege() {
        let limits = access("allow_users = [\"*\"]").limits_for(&who(4001, 4001, &[])).unwrap();
        assert_eq!(limits, Limits::default());
    }

    #[test]
    fn tables_override_single_limits_the_user_above_the_groups() {
        let access = access(
            "allow_users = [\"*\"]
             [limits]
             sockets = 10
             ports = \"5000-5999\"
             [group.4001]
             sockets = 20
             ring_memory = 1000
             ports = \"80\"
             [group.4002]
             sockets = 30
             ring_memory = 500
             ports = \"443\"
             admin = true
             [user.4003]
             sockets = 5
             ports = \"\"",
        );
        let sockets = |who: Credentials| access.limits_for(&who).unwrap().sockets;
        assert_eq!(sockets(who(9, 9, &[])), 10);
        assert_eq!(sockets(who(9, 4001, &[])), 20);
        let both = access.limits_for(&who(9, 4001, &[4002])).unwrap();
        assert_eq!((both.sockets, both.ring_memory, both.admin), (30, 1000, true));
        assert!(both.ports.allow(80) && both.ports.allow(443) && !both.ports.allow(5000));
        let user = access.limits_for(&who(4003, 4001, &[])).unwrap();
        assert_eq!((user.sockets, user.ring_memory), (5, 1000));
        assert!(!user.ports.allow(80) && user.ports.allow(0));
        assert!(access.limits_for(&who(0, 0, &[])).unwrap().ports.allow(22), "root keeps its ports");
        assert_eq!(sockets(who(0, 0, &[])), 10);
    }

    #[test]
    fn refusals_name_the_key_and_what_is_wrong() {
        for (text, word) in [
            ("allow_users = [\"no such user\"]", "allow_users: this machine has no user \"no such user\""),
            ("allow_groups = [\"no such group\"]", "allow_groups: this machine has no group"),
            ("[user.nobodyatall]\nsockets = 1", "[user]: this machine has no user \"nobodyatall\""),
            ("[user.0]\nsockets = 1\n[user.root]\nsockets = 2", "join them"),
            ("[limits]\nsokets = 1", "unknown field `sokets`, expected one of `sockets`"),
            ("[limits]\nports = \"80-\"", "80-"),
            ("[limits]\nsockets = -1", "invalid value"),
            ("allow_users = [true]", "a name or a number"),
            ("allow = 1", "unknown field `allow`"),
        ] {
            let line = refusal(text);
            assert!(line.contains(word), "{text}: {line}");
        }
    }

    #[test]
    fn it_is_written_as_it_was_read() {
        let text = "allow_users = [\"root\", 5]\nallow_groups = []\n\n[limits]\nports = \"80,1024-65535\"\n\n[user.root]\nsockets = 3\n";
        assert_eq!(toml::to_string(&access(text)).unwrap(), text);
    }
}
