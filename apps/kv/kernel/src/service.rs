//! A connection's turn: requests one after another, long ones collected, long answers sent from
//! where they lie.

use crate::command::{self, Outcome, Resume};
use crate::hot;
use crate::own;
use crate::password::Password;
use crate::reply::{ROOM, Reply};
use crate::resp::{self, Parsed, Progress};
use crate::session::{Replies, Session, Transaction};
use crate::store::Store;
use gpunet_device::{Group, Result};
use gpunet_serve::{Carve, Context, Counters, Line, Log, Next, Service, Spill, SpillError, Turn, Writer};

/// Requests from this length on are collected in the heap, so that they need not fit into a ring.
const COLLECTED_FROM: usize = 16 << 10;
/// Requests of one connection before the next one has its turn.
const REQUESTS_OF_A_TURN: usize = 1024;
/// Why a connection ends whose request finds no room among those under way.
const NO_ROOM: &[u8] = b"its requests under way would leave others too little memory";

/// The key-value server.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Kv {
    /// Bytes for keys and values, of all blocks.
    pub memory: u64,
    /// Bytes for requests that are not complete or wait for EXEC, and for names of clients, of all
    /// blocks.
    pub request_memory: u64,
    /// Connections of all blocks, at most.
    pub connections: u64,
    /// Buckets of the hash table.
    pub buckets: u64,
    /// What clients give by AUTH.
    pub password: Password,
}

/// What a connection keeps. Fewer than 128 bytes: a GPU moves what is larger byte by byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    progress: Progress,
    spill: Spill,
    pub(crate) resume: Resume,
    pub(crate) session: Session,
}

const _: () = assert!(size_of::<State>() < 128);

impl State {
    /// Returns whether its next request is in the ring, and depends on nothing but its database.
    fn is_at_rest(&self, password: &Password) -> bool {
        // Not one after the other: a GPU loads all of it together.
        self.spill.is_empty()
            & (self.resume.step == 0)
            & (self.session.transaction == Transaction::None)
            & (self.session.replies == Replies::On)
            & (self.session.is_let_in() | !password.is_set())
    }
}

impl Service for Kv {
    const ENTRY: &'static str = "gpunet_kv";
    type State = State;
    type Shared = Store;

    fn shared(&self, carve: &mut Carve) -> Store {
        let requests = (self.request_memory as usize, self.connections as usize);
        Store::new(carve, self.memory as usize, self.buckets as usize, requests)
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let (store, context, place) = (turn.shared, turn.context, turn.place());
        let mut requests = 0;
        loop {
            let resume = &mut turn.state.resume;
            if (resume.rest.is_value() && !go_on(g, &context, store, resume, &mut turn.output)?)
                || !turn.output.make_room(g, ROOM)?
                // What is collected is no more in the ring, which would give the next turn. Without
                // another request there is nothing to have one for.
                || (requests >= REQUESTS_OF_A_TURN
                    && turn.state.spill.is_empty()
                    && !turn.input.rest().is_empty())
            {
                return Ok(Next::Output);
            }
            requests += 1;
            if turn.state.is_at_rest(&self.password) {
                let (session, bytes) = (&turn.state.session, turn.input.rest());
                let client = (session.database, session.is_resp3());
                let own = &mut turn.counters.own;
                match hot::serve(g, &context, store, bytes, client, &mut turn.output, own)? {
                    0 => {}
                    len => {
                        turn.state.progress = Progress::default();
                        turn.input.consume(len);
                        continue;
                    }
                }
            }
            let State { progress, spill, resume, session } = &mut *turn.state;
            let is_collected = !spill.is_empty();
            let bytes = if is_collected { spill.bytes(&store.requests) } else { turn.input.rest() };
            match resp::parse(bytes, progress) {
                Parsed::Complete(len) => {
                    let request = bytes.first(len);
                    let (is_resp3, is_muted) = (session.is_resp3(), session.is_muted());
                    let mut cx = command::Cx {
                        reply: Reply { g, out: &mut turn.output, is_resp3, is_muted },
                        context,
                        store,
                        resume,
                        session,
                        held: spill.held(&store.requests),
                        counters: turn.counters,
                        connections: turn.connections,
                        roll: turn.roll,
                        place,
                        backlogs: turn.backlogs,
                        unix_ns: turn.unix_ns,
                        password: &self.password,
                        is_transaction: false,
                        holds_keys: false,
                        ends_turn: false,
                    };
                    let outcome = command::execute(&mut cx, request)?;
                    if cx.ends_turn {
                        requests = REQUESTS_OF_A_TURN;
                    }
                    match outcome {
                        // What nobody wants is not sent.
                        Outcome::Unfinished if is_muted && resume.rest.is_value() => {
                            resume.rest.clear(g, &context, store)?;
                            resume.step += 1;
                            continue;
                        }
                        // The same request again when there is room, from the next step on.
                        Outcome::Unfinished if resume.rest.is_value() => continue,
                        Outcome::Unfinished => return Ok(Next::Output),
                        Outcome::Done | Outcome::Exec => {}
                        Outcome::Quit => return Ok(Next::Close),
                        Outcome::Attack => {
                            let counters = &mut *turn.counters;
                            end(g, context.now, End::Attack, &mut turn.output, counters, turn.log);
                            return Ok(Next::Close);
                        }
                    }
                    session.end_request();
                    (*progress, *resume) = (Progress::default(), Resume::default());
                    if is_collected {
                        spill.clear(g, &context, &store.requests)?;
                    } else {
                        turn.input.consume(len);
                    }
                }
                Parsed::Incomplete(total) if is_collected || total >= COLLECTED_FROM => {
                    // Who is not let in yet gets no memory.
                    if self.password.is_set() && !session.is_let_in() {
                        let counters = &mut *turn.counters;
                        end(g, context.now, End::NotLetIn, &mut turn.output, counters, turn.log);
                        return Ok(Next::Close);
                    }
                    let before = turn.input.used();
                    let held = spill.held(&store.requests) + session.held(store);
                    let most = store.most_for(g, held);
                    match spill.collect(g, &context, &store.requests, &mut turn.input, (total, most)) {
                        Ok(()) if turn.input.used() > before => {}
                        Ok(()) => return Ok(Next::Rest),
                        Err(SpillError::NoMemory) => {
                            let counters = &mut *turn.counters;
                            end(g, context.now, End::NoRoom, &mut turn.output, counters, turn.log);
                            return Ok(Next::Close);
                        }
                        Err(SpillError::Over(error)) => return Err(error),
                    }
                }
                Parsed::Incomplete(_) => return Ok(Next::Input),
                Parsed::Invalid(why) => {
                    let counters = &mut *turn.counters;
                    end(g, context.now, End::Invalid(why), &mut turn.output, counters, turn.log);
                    return Ok(Next::Close);
                }
            }
        }
    }

    // A batch of sixteen short requests.
    const COPIED_INPUT: usize = 2048;

    const HELPS: bool = true;

    const HAS_ROLL: bool = true;

    fn help<G: Group>(&mut self, g: &G, store: &Store, context: &Context) -> Result<bool> {
        store.vectors.help(g, context)
    }

    fn closed<G: Group>(&mut self, g: &G, mut state: State, store: &Store, context: &Context) {
        // All fail only if the launch is over, and with it all memory.
        let _ = state.spill.clear(g, context, &store.requests);
        let _ = state.session.clear(g, context, store);
        let _ = state.resume.rest.clear(g, context, store);
    }
}

/// Why a connection ends.
enum End {
    /// It speaks HTTP.
    Attack,
    /// A long request of a client that has not given the password.
    NotLetIn,
    /// Its requests under way would leave others too little memory.
    NoRoom,
    Invalid(resp::Invalid),
}

/// Gives the last answer of a connection, counts it, and writes why it ends.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn end<G: Group>(g: &G, now: u64, why: End, out: &mut Writer<'_>, counters: &mut Counters, log: &mut Log) {
    let mut reply = Reply { g, out, is_resp3: false, is_muted: false };
    let counter = if matches!(why, End::NoRoom) {
        &mut counters.limited
    } else {
        &mut counters.own[own::PROTOCOL_ERRORS]
    };
    *counter += 1;
    let line = match why {
        End::NotLetIn => return reply.raw(b"-ERR Protocol error: unauthenticated bulk length\r\n"),
        End::Attack => Line::new().text(b"a connection is closed: it speaks HTTP"),
        End::NoRoom => {
            reply.no_memory();
            Line::new().text(b"a connection is closed: ").text(NO_ROOM)
        }
        End::Invalid(why) => {
            let last = match why {
                // An error is one line.
                resp::Invalid::NoDollar(b'\r' | b'\n') => b" '",
                resp::Invalid::NoDollar(byte) => &[byte, b'\''][..],
                _ => b"",
            };
            reply.raw(b"-ERR Protocol error: ");
            reply.raw(why.text());
            reply.raw(last);
            reply.raw(b"\r\n");
            Line::new().text(b"protocol error: ").text(why.text()).text(last)
        }
    };
    log.line(g, now, &line);
}

/// Goes on with a value that is being sent. Returns whether nothing of it is left.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn go_on<G: Group>(
    g: &G,
    context: &Context,
    store: &Store,
    resume: &mut Resume,
    out: &mut Writer<'_>,
) -> Result<bool> {
    let is_sent = resume.rest.send(g, context, store, out)?;
    resume.step += usize::from(is_sent);
    Ok(is_sent)
}
