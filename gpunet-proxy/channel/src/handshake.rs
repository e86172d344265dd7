//! How several connections become one channel: each end says a hello on each, of a fixed length.
//!
//! ```text
//! hello  "gpunetch" | version u16 | connections u16 | index u16 | status u16 | channel 16
//!        machine 16 | process 16 | door 16 | uid u32 | flags u32 | text u16 | text .. | to 256 bytes
//! ```
//!
//! The one that connects sends all its hellos, and the one that accepts answers each when all have
//! come. A hello that cannot be taken is answered by a sentence. Both ends then know whether they
//! are on one machine, and of one user; if so, the one that connects goes to the other's door, and
//! says by the connection for answers how that went. Then it passes ends of Unix sockets, which
//! take the place of the first connection (that of headers) and of the last (that of answers); the
//! other end says whether it has them. It passes none where the connections are not the system's.

use crate::error::{ChannelError, Reason};
use crate::local::{Door, Identity, Local};
use crate::wire::{Socket, Wire, lost, read_exact, write_all};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

const MAGIC: &[u8; 8] = b"gpunetch";
pub(crate) const VERSION: u16 = 3;
pub(crate) const HELLO: usize = 256;
const TEXT_AT: usize = 90;
/// The most connections that carry transfers.
pub const MAX_STREAMS: usize = 64;
/// This end can be read by a process of the same user and machine, and wants it.
const SHARES: u32 = 1;

/// What an end says on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// All of the channel, that for answers too.
    pub(crate) connections: u16,
    pub(crate) index: u16,
    /// The errno of a refusal; 0 for none.
    pub(crate) status: u16,
    pub(crate) channel: [u8; 16],
    pub(crate) identity: Identity,
    pub(crate) door: [u8; 16],
    pub(crate) shares: bool,
    pub(crate) text: String,
}

/// Why a hello is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    NotAChannel,
    Version(u16),
    Invalid(&'static str),
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotAChannel => f.write_str("this port is for channels of gpunet"),
            Self::Version(version) => {
                write!(f, "version {version} of the channel's protocol, and {VERSION} is spoken here")
            }
            Self::Invalid(why) => f.write_str(why),
        }
    }
}

fn number<const N: usize>(bytes: &[u8; HELLO], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(MAGIC);
        for number in [VERSION, self.connections, self.index, self.status] {
            put(&number.to_le_bytes());
        }
        for part in [self.channel, self.identity.machine, self.identity.process, self.door] {
            put(&part);
        }
        put(&self.identity.uid.to_le_bytes());
        put(&(u32::from(self.shares) * SHARES).to_le_bytes());
        let room = HELLO - TEXT_AT;
        let len =
            (0..=room.min(self.text.len())).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0);
        put(&(len as u16).to_le_bytes());
        put(&self.text.as_bytes()[..len]);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HELLO]) -> Result<Self, Foreign> {
        if &number::<8>(bytes, 0) != MAGIC {
            return Err(Foreign::NotAChannel);
        }
        let version = u16::from_le_bytes(number(bytes, 8));
        if version != VERSION {
            return Err(Foreign::Version(version));
        }
        let [connections, index, status] = [10, 12, 14].map(|at| u16::from_le_bytes(number(bytes, at)));
        if !(2..=MAX_STREAMS as u16 + 1).contains(&connections) || index >= connections {
            return Err(Foreign::Invalid("a channel has 2 to 65 connections"));
        }
        let [channel, machine, process, door] = [16, 32, 48, 64].map(|at| number(bytes, at));
        let identity = Identity { machine, process, uid: u32::from_le_bytes(number(bytes, 80)) };
        let shares = u32::from_le_bytes(number(bytes, 84)) & SHARES != 0;
        let len = usize::from(u16::from_le_bytes(number(bytes, 88)));
        let text =
            bytes.get(TEXT_AT..TEXT_AT + len).ok_or(Foreign::Invalid("a sentence that is too long"))?;
        let text = String::from_utf8_lossy(text).into_owned();
        Ok(Self { connections, index, status, channel, identity, door, shares, text })
    }
}

/// A refusal, as an answer to whatever came.
pub(crate) fn refusal(errno: i32, why: &str) -> [u8; HELLO] {
    let identity = Identity { machine: [0; 16], process: [0; 16], uid: u32::MAX };
    let status = u16::try_from(errno).unwrap_or(libc::EPROTO as u16);
    Hello {
        connections: 2,
        index: 0,
        status,
        channel: [0; 16],
        identity,
        door: [0; 16],
        shares: false,
        text: why.to_owned(),
    }
    .encode()
}

/// What both ends must be for memory to be read across.
fn unite(own: &Hello, other: &Hello) -> Result<bool, Reason> {
    let (here, there) = (&own.identity, &other.identity);
    if here.machine != there.machine {
        return Err(Reason::OtherMachine);
    }
    if !(own.shares && other.shares) {
        return Err(Reason::SwitchedOff);
    }
    if here.uid != there.uid {
        return Err(Reason::OtherUser);
    }
    Ok(here.process == there.process)
}

type Made = (Vec<Box<dyn Wire>>, Result<Local, Reason>);

/// Makes a channel of connections that this end has opened.
pub(crate) fn connect(
    mut wires: Vec<Box<dyn Wire>>,
    own: &Hello,
    deadline: Option<Instant>,
) -> Result<Made, ChannelError> {
    for (index, wire) in (0..).zip(&wires) {
        let hello = Hello { index, ..own.clone() }.encode();
        write_all(wire.as_ref(), &mut [IoSlice::new(&hello)], deadline)
            .map_err(|error| lost("opening a channel", error))?;
    }
    let mut other = None;
    for (index, wire) in (0..).zip(&wires) {
        let mut bytes = [0; HELLO];
        read_exact(wire.as_ref(), &mut bytes, deadline).map_err(|error| lost("opening a channel", error))?;
        let hello = Hello::decode(&bytes).map_err(|why| ChannelError::Protocol(why.to_string()))?;
        if hello.status != 0 {
            return Err(ChannelError::Refused { errno: hello.status.into(), reason: hello.text });
        }
        if (hello.channel, hello.connections, hello.index) != (own.channel, own.connections, index) {
            let why = "an answer for another channel, or from an end that connects, too";
            return Err(ChannelError::Protocol(why.into()));
        }
        other = Some(hello);
    }
    let other = other.ok_or_else(|| ChannelError::Invalid("a channel without connections".into()))?;
    let local = unite(own, &other).and_then(|same| Local::connect(other.door, own.channel, same));
    let said = [local.as_ref().err().map_or(0, |reason| *reason as u8)];
    let last = wires[wires.len() - 1].as_ref();
    write_all(last, &mut [IoSlice::new(&said)], deadline)
        .map_err(|error| lost("opening a channel", error))?;
    let mut heard = [0];
    read_exact(last, &mut heard, deadline).map_err(|error| lost("opening a channel", error))?;
    let local =
        local.and_then(|local| if heard == [0] { Ok(local) } else { Err(Reason::from_raw(heard[0])) });
    if let Ok(local) = &local {
        give_shortcuts(&mut wires, local, deadline)?;
    }
    Ok((wires, local))
}

/// Puts connections within this machine in the place of the first and the last one: they take half
/// the time of TCP. The other end calls [`take_shortcuts`].
fn give_shortcuts(
    wires: &mut [Box<dyn Wire>],
    local: &Local,
    deadline: Option<Instant>,
) -> Result<(), ChannelError> {
    let opening = |error| lost("opening a channel", error);
    // Who made a channel of streams of his own chose how the bytes go.
    let is_own = wires.iter().all(|wire| wire.descriptor().is_some());
    // Without descriptors the connections stay as they are.
    let pairs =
        if is_own { Socket::pair().and_then(|first| Ok([first, Socket::pair()?])).ok() } else { None };
    let there: Vec<_> = pairs.iter().flatten().map(|(_, there)| there.as_fd()).collect();
    local.pass(&there, deadline).map_err(opening)?;
    let last = wires.len() - 1;
    let mut has_taken = [0];
    read_exact(wires[last].as_ref(), &mut has_taken, deadline).map_err(opening)?;
    if let (Some([(headers, _), (answers, _)]), [1]) = (pairs, has_taken) {
        put_in_place(wires, headers, answers);
    }
    Ok(())
}

fn take_shortcuts(
    wires: &mut [Box<dyn Wire>],
    local: &Local,
    deadline: Option<Instant>,
) -> Result<(), ChannelError> {
    let accepting = |error| lost("accepting a channel", error);
    // Of descriptors for which this process has no room some are missing.
    let passed = <[OwnedFd; 2]>::try_from(local.receive(deadline).map_err(accepting)?).ok();
    let last = wires.len() - 1;
    let has_taken = [u8::from(passed.is_some())];
    write_all(wires[last].as_ref(), &mut [IoSlice::new(&has_taken)], deadline).map_err(accepting)?;
    if let Some([headers, answers]) = passed {
        put_in_place(wires, headers, answers);
    }
    Ok(())
}

fn put_in_place(wires: &mut [Box<dyn Wire>], headers: OwnedFd, answers: OwnedFd) {
    let last = wires.len() - 1;
    wires[0] = Box::new(Socket::of_pair(headers));
    wires[last] = Box::new(Socket::of_pair(answers));
}

/// Makes a channel of connections that were accepted, whose hellos have come.
pub(crate) fn accept(
    mut came: Vec<(Hello, Box<dyn Wire>)>,
    own: Hello,
    deadline: Option<Instant>,
) -> Result<Made, ChannelError> {
    came.sort_by_key(|(hello, _)| hello.index);
    let first = came[0].0.clone();
    let own = Hello { channel: first.channel, connections: first.connections, ..own };
    // Its errors are those of a machine that has no descriptors left.
    let united = unite(&own, &first).and_then(|same| match Door::open() {
        Ok(door) => Ok((door, same)),
        Err(_) => Err(Reason::OtherNamespace),
    });
    let door = united.as_ref().map_or([0; 16], |(door, _)| door.name);
    for (index, (_, wire)) in (0..).zip(&came) {
        let hello = Hello { index, door, ..own.clone() }.encode();
        write_all(wire.as_ref(), &mut [IoSlice::new(&hello)], deadline)
            .map_err(|error| lost("accepting a channel", error))?;
    }
    let mut wires: Vec<_> = came.into_iter().map(|(_, wire)| wire).collect();
    let last = wires[wires.len() - 1].as_ref();
    let mut heard = [0];
    read_exact(last, &mut heard, deadline).map_err(|error| lost("accepting a channel", error))?;
    let local = match (united, heard) {
        (Ok((door, same)), [0]) => door.accept(own.channel, same),
        (Err(reason), _) => Err(reason),
        (_, [reason]) => Err(Reason::from_raw(reason)),
    };
    let said = [local.as_ref().err().map_or(0, |reason| *reason as u8)];
    write_all(last, &mut [IoSlice::new(&said)], deadline)
        .map_err(|error| lost("accepting a channel", error))?;
    if let Ok(local) = &local {
        take_shortcuts(&mut wires, local, deadline)?;
    }
    Ok((wires, local))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        let identity = Identity { machine: [1; 16], process: [2; 16], uid: 1000 };
        Hello {
            connections: 5,
            index: 3,
            status: 0,
            channel: [3; 16],
            identity,
            door: [4; 16],
            shares: true,
            text: "gpunet".into(),
        }
    }

    #[test]
    fn a_hello_comes_back_and_a_foreign_one_is_told_apart() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        let mut other = hello().encode();
        other[8] = 9;
        assert_eq!(Hello::decode(&other), Err(Foreign::Version(9)));
        other[0] = b'G';
        assert_eq!(Hello::decode(&other), Err(Foreign::NotAChannel));
        for (connections, index) in [(0, 0), (1, 0), (66, 0), (5, 5)] {
            let hello = Hello { connections, index, ..hello() };
            assert!(
                matches!(Hello::decode(&hello.encode()), Err(Foreign::Invalid(_))),
                "{connections} {index}"
            );
        }
        let refused = Hello::decode(&refusal(libc::EPROTO, &"ä".repeat(200))).expect("a hello");
        assert!(
            refused.status == 71 && refused.text.starts_with("ää") && refused.text.len() <= HELLO - TEXT_AT
        );
    }

    #[test]
    fn memory_is_read_across_only_by_one_user_on_one_machine_where_both_want_it() {
        let one = hello();
        assert_eq!(unite(&one, &hello()), Ok(true));
        let with = |change: fn(&mut Hello)| {
            let mut other = hello();
            change(&mut other);
            unite(&one, &other)
        };
        assert_eq!(with(|other| other.identity.process = [9; 16]), Ok(false));
        assert_eq!(with(|other| other.identity.machine = [9; 16]), Err(Reason::OtherMachine));
        assert_eq!(with(|other| other.identity.uid = 0), Err(Reason::OtherUser));
        assert_eq!(with(|other| other.shares = false), Err(Reason::SwitchedOff));
    }

    proptest! {
        #[test]
        fn no_hello_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), HELLO), keep in 0usize..20) {
            let mut hello: [u8; HELLO] = bytes.try_into().unwrap();
            let good = super::tests::hello().encode();
            hello[..keep].copy_from_slice(&good[..keep]);
            let _ = Hello::decode(&hello);
        }
    }
}
