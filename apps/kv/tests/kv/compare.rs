//! Random sequences of commands, answered by gpunet-kv and by redis-server: every answer is the
//! same.

use crate::client::{Client, encode};
use crate::program::serve;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A redis-server; killed with the test.
pub struct Redis {
    child: Child,
    pub addr: SocketAddr,
}

impl Redis {
    /// Starts one, if the machine has it.
    pub fn start() -> Option<Self> {
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let port = addr.port().to_string();
        let child = Command::new("redis-server")
            .args(["--port", &port, "--save", "", "--appendonly", "no", "--proto-max-bulk-len", "1mb"])
            .stdout(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            crate::not_run("redis-server is not installed");
            return None;
        };
        let redis = Self { child, addr };
        let started = Instant::now();
        while std::net::TcpStream::connect(addr).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "redis-server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(redis)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A generator of commands: few keys and values, so that they meet; a tenth of the words is wrong.
struct Commands {
    random: u64,
    /// There may be an open transaction, which takes no FLUSHALL.
    in_transaction: bool,
}

impl Commands {
    fn number(&mut self, below: u64) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 33) % below) as usize
    }

    fn one_of(&mut self, words: &[&str]) -> Vec<u8> {
        words[self.number(words.len() as u64)].as_bytes().to_vec()
    }

    fn key(&mut self) -> Vec<u8> {
        self.one_of(&["a", "b", "c", "a long key with spaces", "k\0\r\n", ""])
    }

    fn value(&mut self) -> Vec<u8> {
        match self.number(8) {
            0 => vec![b'v'; self.number(3000)],
            1 => vec![0xff; self.number(40_000)],
            2 => self.one_of(&[
                "",
                "01",
                "-0",
                "+1",
                " 1",
                "1.5",
                "9223372036854775807",
                "-9223372036854775808",
            ]),
            3 => self.one_of(&["x", "word", "\r\n"]),
            _ => format!("{}", self.number(2000) as i64 - 1000).into_bytes(),
        }
    }

    fn time(&mut self) -> Vec<u8> {
        self.one_of(&["100000", "200000", "1000000", "0", "-1", "x", "9223372036854775807", "4000000000"])
    }

    /// Names and options in any case.
    fn cased(&mut self, words: &[&str]) -> Vec<u8> {
        let word = self.one_of(words);
        if self.number(2) == 0 { word.to_ascii_lowercase() } else { word }
    }

    fn next(&mut self) -> Vec<Vec<u8>> {
        let mut command = vec![self.cased(&[
            "GET",
            "GET",
            "SET",
            "SET",
            "SET",
            "MGET",
            "MSET",
            "DEL",
            "EXISTS",
            "INCR",
            "DECR",
            "INCRBY",
            "DECRBY",
            "INCRBYFLOAT",
            "APPEND",
            "STRLEN",
            "EXPIRE",
            "PEXPIRE",
            "TTL",
            "PERSIST",
            "DBSIZE",
            "FLUSHALL",
            "PING",
            "ECHO",
            "SELECT",
            "NOSUCH",
            "UNLINK",
            "CONFIG",
            "SETEX",
            "PSETEX",
            "SETNX",
            "GETSET",
            "GETDEL",
            "GETEX",
            "GETEX",
            "EXPIREAT",
            "PEXPIREAT",
            "EXPIRETIME",
            "TYPE",
            "RENAME",
            "RENAMENX",
            "COPY",
            "MOVE",
            "GETRANGE",
            "SUBSTR",
            "SETRANGE",
            "SETBIT",
            "GETBIT",
            "BITCOUNT",
            "BITCOUNT",
            "MSETNX",
            "TOUCH",
            "MULTI",
            "EXEC",
            "EXEC",
            "DISCARD",
            "HELLO",
        ])];
        let name = String::from_utf8(command[0].to_ascii_uppercase()).unwrap();
        match name.as_str() {
            "SET" => {
                let key = if self.number(4) == 0 { self.one_of(&["f", "g"]) } else { self.key() };
                command.extend([key, self.value()]);
                for _ in 0..[0, 0, 1, 1, 2][self.number(5)] {
                    match self.number(4) {
                        0 => command.push(self.cased(&["NX", "XX", "GET", "KEEPTTL"])),
                        1 => command.push(self.cased(&["EX", "PX"])),
                        // What SET has set to a time that is over Redis may count for a while.
                        2 => {
                            let time = self.one_of(&["4000000000000", "0", "-1", "x"]);
                            command.extend([self.cased(&["EXAT", "PXAT"]), time]);
                        }
                        _ => command.extend([self.cased(&["EX", "PX"]), self.time()]),
                    }
                }
            }
            "MSET" | "MSETNX" => {
                (0..1 + self.number(3)).for_each(|_| command.extend([self.key(), self.value()]))
            }
            "MGET" | "DEL" | "EXISTS" | "UNLINK" => {
                (0..1 + self.number(4)).for_each(|_| command.push(self.key()));
                command.push(self.one_of(&["f", "g"]));
            }
            "GET" | "INCR" | "DECR" | "STRLEN" | "TTL" | "PERSIST" | "GETDEL" | "EXPIRETIME" | "TYPE" => {
                command.push(self.key())
            }
            "APPEND" | "INCRBY" | "DECRBY" | "SETNX" | "GETSET" => command.extend([self.key(), self.value()]),
            // Whole numbers. Redis knows every digit of them: they have their own keys, to which
            // nothing is appended.
            "INCRBYFLOAT" => {
                let amount =
                    self.one_of(&["3", "-2", "1e2", "5.0", "+7.", "x", "", "inf", " 1", "1e", "--1"]);
                command.extend([self.one_of(&["f", "g"]), amount]);
            }
            "SETEX" | "PSETEX" => command.extend([self.key(), self.time(), self.value()]),
            "RENAME" | "RENAMENX" => command.extend([self.key(), self.key()]),
            "COPY" => {
                command.extend([self.key(), self.key()]);
                match self.number(3) {
                    0 => command.push(self.cased(&["REPLACE", "DB"])),
                    1 => command.extend([b"DB".to_vec(), self.one_of(&["0", "7", "x", "16", "99999999999"])]),
                    _ => {}
                }
            }
            "MOVE" => command.extend([self.key(), self.one_of(&["0", "7", "7", "x", "-1", "99999999999"])]),
            "SETRANGE" => {
                let at = self.one_of(&["0", "1", "7", "500", "3000", "-1", "2000000", "x"]);
                command.extend([self.key(), at, self.value()]);
            }
            "SETBIT" | "GETBIT" => {
                command.extend([self.key(), self.one_of(&["0", "1", "7", "8", "999", "-1", "x", "9000000"])]);
                if name == "SETBIT" {
                    command.push(self.one_of(&["0", "1", "1", "2", "x"]));
                }
            }
            "GETRANGE" | "SUBSTR" | "BITCOUNT" => {
                let position = |this: &mut Self| {
                    this.one_of(&["0", "1", "-1", "-2", "5", "-5", "2000", "-9223372036854775808", "x"])
                };
                command.extend([self.key(), position(self), position(self)]);
                if name == "BITCOUNT" && self.number(2) == 0 {
                    command.push(self.cased(&["BIT", "BYTE", "WORD"]));
                }
            }
            "TOUCH" => (0..1 + self.number(3)).for_each(|_| command.push(self.key())),
            "HELLO" => command = vec![b"RESET".to_vec()],
            "GETEX" => {
                command.push(self.key());
                match self.number(4) {
                    0 => {}
                    1 => command.push(self.cased(&["PERSIST", "EX", "NX"])),
                    _ => command.extend([self.cased(&["EX", "PX", "EXAT", "PXAT"]), self.time()]),
                }
            }
            "EXPIRE" | "PEXPIRE" | "EXPIREAT" | "PEXPIREAT" => {
                command.extend([self.key(), self.time()]);
                if self.number(3) == 0 {
                    // GT and LT compare milliseconds, which differ between the two.
                    command.push(self.cased(&["NX", "XX"]));
                }
            }
            "ECHO" | "PING" => command.push(self.value()),
            "SELECT" => command.push(self.one_of(&["0", "0", "0", "7", "99", "x", "-1", "99999999999"])),
            "CONFIG" => command.extend([b"GET".to_vec(), self.cased(&["save", "appendonly", "nothing"])]),
            "NOSUCH" => (0..self.number(5)).for_each(|_| command.push(self.value())),
            // Rarely, so that there is something to find.
            "FLUSHALL" if self.in_transaction || self.number(10) > 0 => command[0] = b"DBSIZE".to_vec(),
            _ => {}
        }
        match name.as_str() {
            "MULTI" => self.in_transaction = true,
            "EXEC" => self.in_transaction = false,
            "DISCARD" | "HELLO" => {
                self.in_transaction = false;
                return command;
            }
            _ => {}
        }
        match self.number(20) {
            // Of subcommands Redis looks at the arguments already when it queues them.
            0 if name != "CONFIG" => command.truncate(1 + self.number(2)),
            1 => command.push(self.one_of(&["x", "17", "two words", ""])),
            _ => {}
        }
        command
    }
}

fn shown(command: &[Vec<u8>]) -> String {
    let words: Vec<_> =
        command.iter().map(|word| String::from_utf8_lossy(&word[..word.len().min(60)])).collect();
    words.join(" ")
}

/// One way in which answers may differ: the time that is left may have changed by a second between
/// the two servers, and what nanoseconds cannot express is cut.
fn is_same(command: &[Vec<u8>], ours: &str, theirs: &str) -> bool {
    let has_time = |name: &&str| command[0].eq_ignore_ascii_case(name.as_bytes());
    let seconds = |line: &str| line.strip_prefix(':').and_then(|rest| rest.trim().parse::<i64>().ok());
    let is_same_line = |(a, b): (&str, &str)| match (seconds(a), seconds(b)) {
        (Some(a), Some(b)) if a > 0 => (a - b).abs() <= 1 || (a > 4_000_000_000 && b > a),
        _ => a == b,
    };
    ours == theirs
        || (["TTL", "EXPIRETIME", "EXEC"].iter().any(has_time)
            && ours.lines().count() == theirs.lines().count()
            && ours.lines().zip(theirs.lines()).all(is_same_line))
}

#[test]
fn random_commands_are_answered_as_redis_server_answers_them() {
    let Some(redis) = Redis::start() else { return };
    let count = std::env::var("GPUNET_KV_COMMANDS").map_or(4000, |count| count.parse().expect("a number"));
    let seed = std::env::var("GPUNET_KV_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let server = serve(&[]);
    let (mut ours, mut theirs) = (Client::connect(server.addr), Client::connect(redis.addr));
    let mut commands = Commands { random: seed, in_transaction: false };
    let mut done = 0;
    while done < count {
        // Several at a time: pipelining changes nothing.
        let batch: Vec<_> = (0..1 + commands.number(20)).map(|_| commands.next()).collect();
        let bytes: Vec<u8> = batch
            .iter()
            .flat_map(|command| encode(&command.iter().map(Vec::as_slice).collect::<Vec<_>>()))
            .collect();
        ours.send(&bytes);
        theirs.send(&bytes);
        for command in &batch {
            let (a, b) = (ours.answer(), theirs.answer());
            assert!(
                is_same(command, &a, &b),
                "seed {seed}, command {done}: {}\nours:   {a:?}\ntheirs: {b:?}",
                shown(command)
            );
            done += 1;
        }
    }
    println!("{done} commands, seed {seed}: every answer is the same");
}

#[test]
fn malformed_requests_are_answered_as_redis_server_answers_them() {
    let Some(redis) = Redis::start() else { return };
    let server = serve(&[]);
    for bytes in [
        &b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$x\r\n"[..],
        b"*1\r\n+PING\r\n",
        b"*1\r\n\r\n",
        b"*1\r\n\nPING\r\n",
        b"*2\r\n$4\r\nPING\r\n\r\nPING\r\n",
        b"*1\r\n\xffPING\r\n",
        b"*1\r\n$-1\r\n",
        b"*2000000000000\r\n",
        b"*1\r\n$1048577\r\n",
        b"GET 'k\r\n",
        b"*-1\r\n*0\r\n\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n",
    ] {
        let answers = [server.addr, redis.addr].map(|addr| {
            let mut client = Client::connect(addr);
            client.send(bytes);
            client.rest()
        });
        assert_eq!(answers[0], answers[1], "{:?}", String::from_utf8_lossy(bytes));
    }
}
