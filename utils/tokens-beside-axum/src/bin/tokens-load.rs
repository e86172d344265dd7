//! A load of completions for gpunet-tokens and for tokens-beside-axum: it starts each server in
//! turn, asks it as N clients would, and says how long they waited and what the server's processor
//! time was.

use clap::Parser;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::Barrier;

/// Longer than any answer takes: then a server hangs.
const TIMEOUT: Duration = Duration::from_secs(120);
/// So long a server may take to start: a driver may have to assemble its kernel.
const START: Duration = Duration::from_secs(180);

type Failure = Box<dyn Error + Send + Sync>;

/// Measures servers of completions: time to first token, gaps between tokens, tokens per second,
/// and the server's processor time.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// A server: a name and the command that starts it, which prints `listening on ADDRESS`. May be
    /// given several times; each round starts them one after another, so that they do not share
    /// the GPU.
    #[arg(long = "server", value_name = "NAME=COMMAND", value_parser = named, required = true)]
    servers: Vec<(String, String)>,
    /// How many clients at a time.
    #[arg(long, value_delimiter = ',', default_value = "1,64,256", value_parser = at_least_one)]
    clients: Vec<usize>,
    /// Tokens of each answer.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    tokens: u32,
    /// Requests of each client, one after another; all clients begin each of them together.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Requests of all clients together, at least: few clients make more than `--requests`.
    #[arg(long, default_value_t = 100)]
    samples: u32,
    /// How often the servers are started and measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// What the model continues.
    #[arg(long, default_value = "A socket ")]
    prompt: String,
    /// Threads of this program [default: half of the cores].
    #[arg(long)]
    threads: Option<usize>,
    /// Print JSON alone.
    #[arg(long)]
    json: bool,
}

fn named(text: &str) -> Result<(String, String), String> {
    let (name, command) = text.split_once('=').ok_or("NAME=COMMAND is expected")?;
    if name.is_empty() || command.trim().is_empty() {
        return Err("NAME=COMMAND is expected".into());
    }
    Ok((name.into(), command.into()))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "a number of at least 1 is expected".into())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = args.threads.unwrap_or(cores / 2).max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let measured = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(measure_all(args)));
    measured.map_or_else(
        |error| {
            eprintln!("tokens-load: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

async fn measure_all(args: Args) -> Result<(), Failure> {
    let mut all: Vec<Vec<Measured>> = args.servers.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for ((name, command), measured) in args.servers.iter().zip(&mut all) {
            let mut server = Server::start(name, command).await?;
            // What happens once in the life of a server is not measured.
            measure(&server, 1, 2, &args).await?;
            for (at, clients) in args.clients.iter().enumerate() {
                let requests = args.requests.max(args.samples.div_ceil(u32::try_from(*clients)?.max(1)));
                let one = measure(&server, *clients, requests, &args).await?;
                match measured.get_mut(at) {
                    Some(before) => before.add(one),
                    None => measured.push(one),
                }
            }
            server.stop().await?;
        }
    }
    let results: Vec<Summary> = args
        .servers
        .iter()
        .zip(&mut all)
        .flat_map(|((name, _), measured)| measured.iter_mut().map(|one| one.summary(name)))
        .collect();
    if !args.json {
        table(&results);
    }
    let (tokens, rounds, prompt) = (args.tokens, args.rounds, &args.prompt);
    let commands: std::collections::BTreeMap<_, _> = args.servers.iter().cloned().collect();
    println!(
        "{}",
        serde_json::json!({"tokens": tokens, "rounds": rounds, "prompt": prompt, "servers": commands, "results": results})
    );
    Ok(())
}

/// A server that runs.
struct Server {
    name: String,
    child: Child,
    address: String,
    process: u32,
}

impl Server {
    async fn start(name: &str, command: &str) -> Result<Self, Failure> {
        let mut words = command.split_whitespace();
        let program = words.next().ok_or("a server needs a command")?;
        let mut child = Command::new(program)
            .args(words)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("{name}: cannot start {program}: {error}"))?;
        let process = child.id().ok_or("a process without a number")?;
        let output = child.stdout.take().ok_or("a server has no output")?;
        let mut lines = BufReader::new(output).lines();
        let address = tokio::time::timeout(START, async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix("listening on ") {
                    return Ok(address.to_owned());
                }
            }
            Err(Failure::from(format!("{name} has ended before it said `listening on ADDRESS`")))
        });
        let address = address.await.map_err(|_| format!("{name} says no `listening on ADDRESS`"))??;
        // What else it prints is read, so that it never waits for that.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self { name: name.into(), child, address, process })
    }

    /// Ends it as Ctrl-C does.
    async fn stop(&mut self) -> Result<(), Failure> {
        let killed = Command::new("kill").args(["-INT", &self.process.to_string()]).status().await?;
        if !killed.success() {
            return Err(format!("{} has ended before its time", self.name).into());
        }
        let ended = tokio::time::timeout(TIMEOUT, self.child.wait()).await;
        ended.map_err(|_| format!("{} does not end after SIGINT", self.name))??;
        Ok(())
    }

    /// The processor time of all its threads so far.
    fn processor_time(&self) -> Result<Duration, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process))
            .map_err(|error| format!("{} has ended: {error}", self.name))?;
        // The name, in brackets, may have blanks. Behind it utime and stime are the 12th and 13th,
        // in hundredths of a second on Linux.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Ok(Duration::from_millis((field(11) + field(12)) * 10))
    }
}

/// What a load has measured.
struct Measured {
    clients: usize,
    first: Vec<Duration>,
    gaps: Vec<Duration>,
    tokens: u64,
    seconds: f64,
    processor: f64,
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.first.extend(other.first);
        self.gaps.extend(other.gaps);
        self.tokens += other.tokens;
        self.seconds += other.seconds;
        self.processor += other.processor;
    }

    fn summary(&mut self, server: &str) -> Summary {
        Summary {
            server: server.into(),
            clients: self.clients,
            time_to_first_token_ms: percentiles(&mut self.first),
            gap_between_tokens_ms: percentiles(&mut self.gaps),
            tokens_per_second: round(self.tokens as f64 / self.seconds),
            requests: self.first.len(),
            processor_s: round(self.processor),
            processor_us_per_token: round(self.processor * 1e6 / self.tokens as f64),
            processor_cores: round(self.processor / self.seconds),
        }
    }
}

#[derive(Serialize)]
struct Summary {
    server: String,
    clients: usize,
    time_to_first_token_ms: Percentiles,
    gap_between_tokens_ms: Percentiles,
    tokens_per_second: f64,
    requests: usize,
    processor_s: f64,
    processor_us_per_token: f64,
    processor_cores: f64,
}

#[derive(Serialize)]
struct Percentiles {
    p50: f64,
    p90: f64,
    p99: f64,
}

fn percentiles(values: &mut [Duration]) -> Percentiles {
    values.sort_unstable();
    let at = |part: f64| {
        let place = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
        values.get(place).map_or(0.0, |value| round(value.as_secs_f64() * 1e3))
    };
    Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn table(results: &[Summary]) {
    println!(
        "| server | clients | to first token, ms, p50 / p90 / p99 | between tokens, ms, p50 / p90 / p99 | tokens/s | processor, us a token | cores |"
    );
    println!("|---|---|---|---|---|---|---|");
    for it in results {
        let three = |of: &Percentiles| format!("{:.2} / {:.2} / {:.2}", of.p50, of.p90, of.p99);
        println!(
            "| {} | {} | {} | {} | {:.0} | {:.1} | {:.2} |",
            it.server,
            it.clients,
            three(&it.time_to_first_token_ms),
            three(&it.gap_between_tokens_ms),
            it.tokens_per_second,
            it.processor_us_per_token,
            it.processor_cores
        );
    }
    println!();
}

/// Asks a server as so many clients, each on a connection of its own.
async fn measure(server: &Server, clients: usize, requests: u32, args: &Args) -> Result<Measured, Failure> {
    let body = serde_json::json!({"model": "gpunet-tokens", "prompt": args.prompt, "max_tokens": args.tokens, "temperature": 0, "stream": true, "ignore_eos": true});
    let body = Bytes::from(body.to_string());
    let barrier = Arc::new(Barrier::new(clients));
    let mut tasks = tokio::task::JoinSet::new();
    let mut senders = Vec::new();
    for _ in 0..clients {
        senders.push(connect(&server.address).await.map_err(|error| format!("{}: {error}", server.name))?);
    }
    let before = server.processor_time()?;
    let began = Instant::now();
    for mut sender in senders {
        let (barrier, body, address, tokens) =
            (barrier.clone(), body.clone(), server.address.clone(), args.tokens);
        tasks.spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..requests {
                barrier.wait().await;
                let answer =
                    tokio::time::timeout(TIMEOUT, ask(&mut sender, &address, body.clone(), tokens)).await;
                answers.push(answer.map_err(|_| "an answer has not ended after two minutes")??);
            }
            Ok::<_, Failure>(answers)
        });
    }
    let mut measured =
        Measured { clients, first: Vec::new(), gaps: Vec::new(), tokens: 0, seconds: 0.0, processor: 0.0 };
    while let Some(answers) = tasks.join_next().await {
        // The first failure ends the measurement: others may wait for that client.
        for answer in answers?.map_err(|error| format!("{}, {clients} clients: {error}", server.name))? {
            measured.first.push(answer.first);
            measured.gaps.extend(answer.gaps);
            measured.tokens += u64::from(args.tokens);
        }
    }
    measured.seconds = began.elapsed().as_secs_f64();
    measured.processor = (server.processor_time()? - before).as_secs_f64();
    Ok(measured)
}

async fn connect(address: &str) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// An answer: how long its first token took, and the times between events.
struct Answer {
    first: Duration,
    gaps: Vec<Duration>,
}

/// The part of an event that is looked at.
#[derive(Deserialize)]
struct Event {
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    text: String,
}

async fn ask(
    sender: &mut SendRequest<Full<Bytes>>,
    address: &str,
    body: Bytes,
    tokens: u32,
) -> Result<Answer, Failure> {
    let request = Request::post("/v1/completions")
        .header("Host", address)
        .header("Content-Type", "application/json")
        .body(Full::new(body))?;
    sender.ready().await?;
    let sent = Instant::now();
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let mut body = answer.into_body();
    let (mut buffer, mut last, mut made, mut is_done) = (Vec::new(), None, 0, false);
    let mut result = Answer { first: Duration::ZERO, gaps: Vec::with_capacity(tokens as usize) };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let now = Instant::now();
        buffer.extend_from_slice(&data);
        if status != StatusCode::OK {
            continue;
        }
        while let Some(end) = buffer.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = buffer.drain(..end + 2).collect();
            let Some(data) = event.strip_prefix(b"data: ") else { continue };
            if data.starts_with(b"[DONE]") {
                is_done = true;
                continue;
            }
            let event: Event = serde_json::from_slice(data).map_err(|error| {
                format!("an event that is none: {error}: {}", String::from_utf8_lossy(data))
            })?;
            let text = event.choices.first().map_or("", |choice| &choice.text);
            if text.is_empty() {
                continue;
            }
            made += text.chars().count();
            match last {
                None => result.first = now - sent,
                Some(before) => result.gaps.push(now - before),
            }
            last = Some(now);
        }
    }
    if status != StatusCode::OK {
        return Err(format!("{status}: {}", String::from_utf8_lossy(&buffer)).into());
    }
    // A token is a byte; the model's texts are ASCII.
    if !is_done || made != tokens as usize {
        return Err(format!("an answer has {made} tokens instead of {tokens}, or no end").into());
    }
    Ok(result)
}
