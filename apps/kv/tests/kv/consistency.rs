//! Clients that write and read a small cache in pipelines while keys are evicted and expire, and
//! while some of the clients break off: what is answered was written, whole, and is the newest.

use crate::client::{Client, encode};
use crate::program::{serve, stop};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const CLIENTS: usize = 4;
/// Keys of a client and a connection, which alone writes them.
const KEYS: usize = 40;
/// Connections of a client, and pipelines of a connection, the last of which it breaks off.
const CONNECTIONS: usize = 8;
const PIPELINES: usize = 8;

/// The value that a key has, unless it was evicted.
#[derive(Clone, Copy, Default)]
struct Newest {
    /// 0: it was never set.
    version: usize,
    /// When it has expired at the latest, if it expires.
    gone: Option<Instant>,
}

/// A key: its client, that one's connection, and a number.
type Key = [usize; 3];

fn name([client, connection, key]: Key) -> Vec<u8> {
    format!("{client}:{connection}:{key}").into_bytes()
}

/// A value of which each part tells its key and its version.
fn value([client, connection, key]: Key, version: usize) -> Vec<u8> {
    let text = format!("{client} {connection} {key} {version} ");
    // Some do not fit into a ring.
    let len = if (key + version).is_multiple_of(16) { 100_000 } else { (key + version) * 371 % 3000 };
    text.bytes().cycle().take(text.len() + len).collect()
}

/// The version of the value in an answer to GET, which is whole; `None`: there is no value.
fn version(answer: &str, key: Key) -> Option<usize> {
    if answer == "$-1\r\n" {
        return None;
    }
    let value_found =
        answer.split_once("\r\n").and_then(|(_, rest)| rest.strip_suffix("\r\n")).expect(answer);
    let version = value_found.split(' ').nth(3).and_then(|word| word.parse().ok()).expect(answer);
    assert!(value_found.as_bytes() == value(key, version), "{key:?} has another key's value, or a torn one");
    Some(version)
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below
    }
}

/// Sends pipelines on one connection and checks their answers; breaks off in the last one. Returns
/// how many values it has found.
fn talk(addr: SocketAddr, who: [usize; 2], random: &mut Random) -> usize {
    let mut client = Client::connect(addr);
    let (mut newest, mut versions) = ([Newest::default(); KEYS], [0; KEYS]);
    let mut found = 0;
    for pipeline in 1..=PIPELINES {
        let (mut requests, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..1 + random.below(60) {
            let number = random.below(KEYS);
            // Keys of others are only read.
            let client = if random.below(4) == 0 { random.below(CLIENTS) } else { who[0] };
            let key = [client, who[1], number];
            if client != who[0] || random.below(2) == 0 {
                requests.extend(encode(&[b"GET", &name(key)]));
                steps.push((key, None));
                continue;
            }
            versions[number] += 1;
            let (name, value) = (name(key), value(key, versions[number]));
            // One of three expires soon.
            let ms = (random.below(3) == 0).then(|| 1 + random.below(30) as u64);
            match ms.map(|ms| ms.to_string()) {
                Some(ms) => requests.extend(encode(&[b"SET", &name, &value, b"PX", ms.as_bytes()])),
                None => requests.extend(encode(&[b"SET", &name, &value])),
            }
            steps.push((key, Some((versions[number], ms))));
        }
        let sent = Instant::now();
        client.send(&requests);
        let read = if pipeline == PIPELINES { random.below(steps.len()) } else { steps.len() };
        for (key, set) in steps.into_iter().take(read) {
            let (answer, newest) = (client.answer(), &mut newest[key[2]]);
            if let Some((version, ms)) = set {
                assert_eq!(answer, "+OK\r\n");
                let gone = ms.map(|ms| Instant::now() + Duration::from_millis(ms));
                *newest = Newest { version, gone };
            } else if let Some(version) = version(&answer, key)
                && key[0] == who[0]
            {
                assert_eq!(version, newest.version, "{key:?} has an old value");
                assert!(newest.gone.is_none_or(|gone| gone >= sent), "{key:?} has expired");
                found += 1;
            }
        }
    }
    // Answers that it has not read: it is reset.
    found
}

#[test]
fn what_is_answered_is_whole_and_the_newest_though_keys_go_and_clients_break_off() {
    let server = serve(&["--blocks", "2", "--memory", "4M"]);
    let addr = server.addr;
    let threads: Vec<_> = (0..CLIENTS)
        .map(|client| {
            std::thread::spawn(move || {
                let mut random = Random(client as u64 + 1);
                (0..CONNECTIONS)
                    .map(|connection| talk(addr, [client, connection], &mut random))
                    .sum::<usize>()
            })
        })
        .collect();
    let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert!(found.iter().all(|found| *found > 50), "{found:?}");
    let mut client = Client::connect(addr);
    let info = client.say("INFO stats");
    assert!(!info.contains("evicted_keys:0\r\n"), "no key was evicted: {info}");
    assert_eq!(client.say("FLUSHALL"), "+OK\r\n");
    drop(client);
    assert!(stop(server).out.contains(" 0 protocol errors"));
}

/// Two clients set the same keys to letters, one by MSET, one by transactions; the third one
/// removes them. Who reads all keys at once finds one letter, or none, however long the values are.
#[test]
fn no_other_client_sees_a_part_of_a_command_on_several_keys() {
    const READS: usize = 1500;
    let server = serve(&["--blocks", "2"]);
    let addr = server.addr;
    let names: Vec<_> = (0..16).map(|number| format!("key {number}").into_bytes()).collect();
    let request = |name: &[u8], words: Vec<&[u8]>| encode(&[&[name][..], &words].concat());
    let keys = |name| request(name, names.iter().map(Vec::as_slice).collect());
    let sets = |letter: u8, len| {
        let value = vec![letter; len];
        request(b"MSET", names.iter().flat_map(|name| [name.as_slice(), value.as_slice()]).collect())
    };
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let repeat = |requests: Vec<Vec<u8>>, answers: usize| {
        let mut client = Client::connect(addr);
        while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
            for request in &requests {
                client.send(request);
                (0..answers).for_each(|_| drop(client.answer()));
            }
        }
    };
    let letters = || (b'a'..=b'z').zip([10, 3000, 20_000].into_iter().cycle());
    let in_transactions = |requests: Vec<u8>| [encode(&[b"MULTI"]), requests, encode(&[b"EXEC"])].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| repeat(letters().map(|(letter, len)| sets(letter, len)).collect(), 1));
        scope.spawn(|| {
            let requests = letters().map(|(letter, len)| {
                let value = vec![letter.to_ascii_uppercase(); len];
                in_transactions(names.iter().flat_map(|name| encode(&[b"SET", name, &value])).collect())
            });
            repeat(requests.collect(), 2 + names.len());
        });
        scope.spawn(|| repeat(vec![keys(b"DEL")], 1));
        let read = scope.spawn(|| {
            let mut client = Client::connect(addr);
            for read in 0..READS {
                client.send(&keys(b"MGET"));
                let answer = client.answer();
                let mut values: Vec<_> = answer.lines().filter(|line| !line.starts_with('$')).collect();
                values.dedup();
                let is_one = values.len() == 2 && !answer.contains("$-1");
                let is_none = answer.matches("$-1").count() == names.len();
                assert!(is_one || is_none, "read {read}: {answer:.200}");
                client.send(&keys(b"EXISTS"));
                let count = client.answer();
                assert!(count == ":0\r\n" || count == ":16\r\n", "read {read}: {count}");
            }
        });
        let read = read.join();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(panic) = read {
            std::panic::resume_unwind(panic);
        }
    });
    stop(server);
}
