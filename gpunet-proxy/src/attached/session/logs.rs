//! What kernels of a daemon's clients have recorded and printed.

use super::connect::{Connection, next};
use crate::model::error::DaemonError;
use crate::model::message::ANSWER_TIMEOUT;
use crate::wire::{self, Hello, ToDaemon, ToProgram};
use gpu_usermap::PinnedRegion;
use gpunet_records::{FormatText, Found, Level, Line, NoLine, Reader, Record, Records, Shape, WhenFull};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Why there are no records of a client.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The daemon cannot be asked.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The daemon keeps none of a client of that number.
    #[error("client {client} has no records that this user may read; {others}", others = others(.clients))]
    NotThere {
        /// The client that was asked for.
        client: u32,
        /// Those that have records.
        clients: Vec<u32>,
    },
}

fn others(clients: &[u32]) -> String {
    if clients.is_empty() {
        return "no client has any".to_owned();
    }
    let numbers: Vec<String> = clients.iter().map(ToString::to_string).collect();
    format!("those that have are {}", numbers.join(", "))
}

/// The records of a client, in memory that the daemon keeps. Reading them changes nothing, neither
/// for the client nor for other readers, and goes on when daemon and client are gone.
///
/// # Examples
/// ```no_run
/// # use gpunet_proxy::{daemon, places};
/// let mut log = daemon::logs(&places::daemon_path(), 7)?;
/// log.poll(|_, line| {
///     if let Ok(line) = line {
///         println!("{line}");
///     }
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClientLog {
    /// Its process.
    pub pid: u32,
    /// What the program is called.
    pub command: String,
    /// "cpu", or the GPU's name.
    pub device: String,
    /// Whether the client has ended.
    pub has_ended: bool,
    /// How many sets of rings the daemon has of it.
    pub sets: usize,
    sources: Vec<Source>,
}

/// A set of rings, and the memory behind it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) reader: Reader,
    pub(crate) records: Records,
    region: Arc<PinnedRegion>,
}

/// A record, as long as nobody else owns its bytes.
type Owned = (u32, u64, gpunet_records::Head, Vec<u8>);

impl ClientLog {
    /// Gives `each` the records that have come since the last call, in the order of their times,
    /// and those that are printed lines as lines. Returns how many there were.
    pub fn poll(&mut self, mut each: impl FnMut(&Record<'_>, Result<Line, NoLine>)) -> u64 {
        let mut records: Vec<(usize, Owned)> = Vec::new();
        for (at, source) in self.sources.iter_mut().enumerate() {
            source.reader.poll(|ring, number, head, payload| {
                records.push((at, (ring, number, *head, payload.to_vec())));
            });
        }
        records.sort_by_key(|(_, (_, _, head, _))| head.time_ns);
        for (at, (ring, number, head, payload)) in &records {
            let record = Record { ring: *ring, number: *number, head: *head, payload };
            let line = match head.kind.format() {
                None => Err(NoLine::OtherKind),
                Some(format) => match self.sources[*at].reader.format(format) {
                    Some(text) => Line::by_text(&record, &text),
                    None => Err(NoLine::NoText(format)),
                },
            };
            each(&record, line);
        }
        records.len() as u64
    }

    /// Gives `each` the records that have come since the last call, those of each ring in order,
    /// and the texts of the formats that they name. Rings of different sets have different numbers.
    /// Returns how many records there were.
    ///
    /// It keeps none of them, however many there are.
    ///
    /// # Examples
    /// ```no_run
    /// # use gpunet_proxy::{daemon, places};
    /// # use gpunet_records::ChromeTrace;
    /// let mut log = daemon::logs(&places::daemon_path(), 7)?;
    /// let mut trace = ChromeTrace::begin(std::io::stdout(), log.pid, &log.command);
    /// log.poll_rings(|record, text| trace.put(record, text));
    /// trace.finish()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_rings(&mut self, mut each: impl FnMut(&Record<'_>, Option<&FormatText>)) -> u64 {
        let (mut first, mut count) = (0_u32, 0);
        for Source { reader, records, .. } in &mut self.sources {
            count += reader.poll(|ring, number, head, payload| {
                let record = Record { ring: first.wrapping_add(ring), number, head: *head, payload };
                let text = record.format().and_then(|format| records.format(format));
                each(&record, text.as_ref());
            });
            first = first.wrapping_add(reader.shape().rings());
        }
        count
    }

    /// Takes what the daemon has said later of the same client: sets of rings that are new are read
    /// from now on, too.
    pub fn join(&mut self, later: Self) {
        // The daemon may have dropped some; memory is known by its file.
        let known: Vec<_> = self.sources.iter().map(|source| file(&source.region)).collect();
        self.sources.extend(later.sources.into_iter().filter(|new| !known.contains(&file(&new.region))));
        (self.has_ended, self.sets) = (later.has_ended, later.sets);
    }

    /// How many records were read and lost.
    #[must_use]
    pub fn found(&self) -> Found {
        self.sources.iter().fold(Found::default(), |all, source| all.and(source.reader.found()))
    }
}

/// Asks the daemon at `path` for what the kernels of a client have recorded. `client` is its
/// number, as `gpunetctl clients` shows it. Admins may read all, other users their own.
///
/// # Errors
/// [`LogsError`].
pub fn logs(path: &Path, client: u32) -> Result<ClientLog, LogsError> {
    let silent = |source| DaemonError::Silent { path: path.to_owned(), source };
    let strange = |what: String| DaemonError::Strange { path: path.to_owned(), what };
    let (socket, _) = Connection::ready(path, &Hello::Admin)?;
    wire::send(socket.as_fd(), &wire::encode(&ToDaemon::Logs { client }), &[]).map_err(silent)?;
    let packet = next(&socket, ANSWER_TIMEOUT).map_err(silent)?;
    let (frame, fds) = wire::decode::<ToProgram>(packet).map_err(|error| strange(error.to_string()))?;
    let ToProgram::Logs { log, clients } = frame else {
        return Err(strange(format!("it said {frame:?}")).into());
    };
    let log = log.ok_or(LogsError::NotThere { client, clients })?;
    let sets = fds.len();
    // Memory that its program has not filled yet, or filled with something else, has no records.
    let sources = fds.into_iter().filter_map(source).collect();
    Ok(ClientLog {
        pid: log.pid,
        command: log.command,
        device: log.device,
        has_ended: log.has_ended,
        sets,
        sources,
    })
}

/// What two descriptors of the same memory have in common.
fn file(region: &PinnedRegion) -> Option<(u64, u64)> {
    rustix::fs::fstat(region.fd()).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

/// The rings behind a descriptor.
fn source(fd: OwnedFd) -> Option<Source> {
    Source::of(PinnedRegion::from_fd(fd).ok()?)
}

impl Source {
    /// The rings in a region, with a reader for which nobody waits.
    pub(crate) fn of(region: Arc<PinnedRegion>) -> Option<Self> {
        let memory = region.base().as_ptr();
        // SAFETY: the region is mapped for its length from a page on.
        let (shape, _) = unsafe { Shape::found_in(memory, region.len()) }?;
        // SAFETY: the shape fits into the region, which is kept beside the reader. A reader uses no
        // memory of the device. Whoever writes there, the reader judges what it finds.
        let records =
            unsafe { Records::new(memory, std::ptr::null_mut(), shape, WhenFull::Overwrite, Level::Trace) };
        // SAFETY: as above. Records that wait have another reader: as one that overwrites, this one
        // stores nothing.
        Some(Self { reader: unsafe { Reader::new(records) }, records, region })
    }
}
