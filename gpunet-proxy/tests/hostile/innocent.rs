//! Clients that keep to the rules, and how long they wait.

use crate::attacks::PEER_LISTENER;
use crate::support::client::client;
use crate::support::pair::connect;
use crate::support::world::{LOOPBACK, listen, small};
use crate::support::{Memory, SOLO};
use gpunet_device::team::Rank;
use gpunet_device::{Listener, Options, TransportKind};
use gpunet_proxy::team::{Team, TeamListener};
use gpunet_proxy::{Attachment, attach};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Waiting times, in the order in which they were measured.
type Times = Arc<Mutex<Vec<Duration>>>;

/// Members of a team.
const MEMBERS: u32 = 3;

/// One that binds and closes, one that echoes over TCP, one that echoes to another over peer, and
/// some that form teams.
pub struct Innocent {
    over: Arc<AtomicBool>,
    times: [Times; 4],
    threads: Vec<JoinHandle<()>>,
}

impl Innocent {
    pub fn start(path: &Path) -> Self {
        let (over, times) = (Arc::new(AtomicBool::new(false)), <[Times; 4]>::default());
        let proxy = attach(path, small()).expect("a daemon");
        let beside = proxy.attach_cpu().expect("attached");
        let announced = path.with_file_name(PEER_LISTENER);
        let peer_echo = move |attachment: &Attachment, again: Again<'_>| {
            echo_to_peer(attachment, &beside, &announced, again);
            assert_eq!(beside.close().undelivered, 0);
        };
        let plays: [Play; 3] = [Box::new(call), Box::new(echo), Box::new(peer_echo)];
        let threads = plays.into_iter().zip(&times).map(|(play, times)| {
            let attachment = proxy.attach_cpu().expect("attached");
            let (over, times) = (over.clone(), times.clone());
            std::thread::spawn(move || {
                play(&attachment, &mut |since| {
                    times.lock().expect("sane").push(since.elapsed());
                    !over.load(Ordering::Relaxed)
                });
                assert_eq!(attachment.close().undelivered, 0);
            })
        });
        let mut threads: Vec<_> = threads.collect();
        let members = (0..MEMBERS).map(|_| proxy.attach_cpu().expect("attached")).collect();
        let (over_too, times_too, file) = (over.clone(), times[3].clone(), meeting(path));
        threads.push(std::thread::spawn(move || {
            form(members, &file, &mut |since| {
                times_too.lock().expect("sane").push(since.elapsed());
                !over_too.load(Ordering::Relaxed)
            });
        }));
        Self { over, times, threads }
    }

    pub fn attachments(&self) -> usize {
        // Two echo to each other, and one thread forms the teams.
        self.threads.len() + MEMBERS as usize
    }

    /// What they see in that time: of calls, of echoes over TCP, of those over peer, and of teams.
    pub fn during(&self, time: Duration) -> [String; 4] {
        self.times.iter().for_each(|times| times.lock().expect("sane").clear());
        std::thread::sleep(time);
        assert!(self.threads.iter().all(|thread| !thread.is_finished()), "an innocent client has failed");
        self.times.each_ref().map(|times| {
            let mut times = times.lock().expect("sane").clone();
            times.sort_unstable();
            let at = |share: f64| {
                let at = (times.len() as f64 * share) as usize;
                times
                    .get(at.min(times.len().saturating_sub(1)))
                    .map_or(f64::INFINITY, |t| t.as_secs_f64() * 1e3)
            };
            format!("{:.2} / {:.2} / {:.1}", at(0.5), at(0.99), at(1.0))
        })
    }

    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("nobody but the attackers gets an error");
        }
    }
}

/// Notes since when a round has taken, and returns whether there is another one.
type Again<'a> = &'a mut dyn FnMut(Instant) -> bool;
type Play = Box<dyn FnOnce(&Attachment, Again<'_>) + Send>;

fn call(attachment: &Attachment, again: Again<'_>) {
    let token = attachment.token().expect("a number");
    loop {
        let since = Instant::now();
        let listener = Listener::bind(&SOLO, token.net(), LOOPBACK).expect("a port");
        listener.close(&SOLO).expect("open");
        if !again(since) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn echo(attachment: &Attachment, again: Again<'_>) {
    let token = attachment.token().expect("a number");
    let listener = listen(token.net(), Options::DEFAULT.with_transport(TransportKind::Tcp));
    let mut peer = client(listener.local_addr());
    let mut stream = listener.accept(&SOLO).expect("accepted");
    let memory = Memory::new(64);
    for round in 0u64.. {
        let (since, message) = (Instant::now(), [round as u8; 64]);
        peer.write_all(&message).expect("sent");
        stream.recv_exact(&SOLO, memory.buffer()).expect("received");
        stream.send_all(&SOLO, memory.buffer()).expect("sent");
        let mut back = [0; 64];
        peer.read_exact(&mut back).expect("received");
        assert_eq!(back, message);
        if !again(since) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    stream.close(&SOLO).expect("open");
    listener.close(&SOLO).expect("open");
}

/// The file in which the address stands at which a team meets.
pub fn meeting(path: &Path) -> PathBuf {
    path.with_file_name("meeting")
}

/// Forms a team, allocates memory and leaves.
fn form(members: Vec<Attachment>, meeting: &Path, again: &mut dyn FnMut(Instant) -> bool) {
    loop {
        let since = Instant::now();
        let listener = TeamListener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let id = listener.id();
        std::fs::write(meeting, id.address().to_string()).expect("our own");
        let mut listener = Some(listener);
        std::thread::scope(|scope| {
            for (rank, attachment) in (0..).zip(&members) {
                let listener = listener.take();
                scope.spawn(move || {
                    let team = match listener {
                        Some(listener) => Team::lead(attachment, listener, MEMBERS),
                        None => Team::join(attachment, id, Rank(rank), MEMBERS),
                    };
                    let team = team.expect("a team");
                    team.alloc::<u64>(10).expect("memory");
                    team.leave().expect("all leave");
                });
            }
        });
        if !again(since) {
            return;
        }
    }
}

/// Echoes over peer, and goes on listening at an address that everybody knows.
fn echo_to_peer(attachment: &Attachment, beside: &Attachment, announced: &Path, again: Again<'_>) {
    let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
    let (token, other) = (attachment.token().expect("a number"), beside.token().expect("a number"));
    let listener = listen(token.net(), peer);
    let [mut client, mut stream] = connect(other.net(), &listener, peer);
    std::fs::write(announced, listener.local_addr().to_std().expect("an IP address").to_string())
        .expect("our own directory");
    let (there, back) = (Memory::new(64), Memory::new(64));
    loop {
        let since = Instant::now();
        client.send_all(&SOLO, there.buffer()).expect("sent");
        stream.recv_exact(&SOLO, back.buffer()).expect("received");
        stream.send_all(&SOLO, back.buffer()).expect("sent");
        client.recv_exact(&SOLO, there.buffer()).expect("received");
        if !again(since) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    client.close(&SOLO).expect("open");
    stream.close(&SOLO).expect("open");
    listener.close(&SOLO).expect("open");
}
