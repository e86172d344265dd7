//! A token server: clients ask for tokens, and one block of the launch, the model, makes them for
//! all clients at a rhythm. The skeleton of a server of a language model.

mod modes;

use gpunet_proxy::device::{Group, Options, Result};
use gpunet_proxy::{Config, embed};
use gpunet_serve::{Bell, Carve, Next, Service, Turn, WorkQueue, WorkQueues, Worker};
use gpunet_serve_host::{ServerSettings, start_with_data};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The settings.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tokens {
    /// From one token of a client to the next.
    pause_ns: u64,
    /// Clients that the model serves at a time.
    batch: u64,
}

/// What the blocks share: who wants how many tokens, who is served, and the tokens of each client.
#[derive(Clone, Copy)]
struct Model {
    requests: WorkQueue<2>,
    batch: WorkQueue<3>,
    tokens: WorkQueues<2>,
}

impl Service for Tokens {
    const ENTRY: &'static str = "tokens";
    /// How many tokens the client still gets.
    type State = u64;
    type Shared = Model;

    fn shared(&self, carve: &mut Carve) -> Model {
        Model {
            requests: WorkQueue::new(carve, 1024),
            batch: WorkQueue::new(carve, self.batch as usize),
            tokens: WorkQueues::new(carve, 4),
        }
    }

    fn workers(&self) -> u32 {
        1
    }

    /// A line is a number: so many tokens follow, and an end of line.
    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let bell = turn.bell();
        while turn.output.make_room(g, 8)? {
            if *turn.state > 0 {
                match turn.shared.tokens.at(bell.place()).pop(g, &turn.context)? {
                    Some([to, token]) if to == bell.raw() => {
                        turn.output.put(g, &[token as u8]);
                        *turn.state -= 1;
                        if *turn.state == 0 {
                            turn.output.put(g, b"\n");
                        }
                    }
                    // It was for an earlier connection.
                    Some(_) => {}
                    None => return Ok(Next::Bell),
                }
                continue;
            }
            match turn.input.line(10) {
                Ok(Some(line)) => {
                    let count = line.number().filter(|count| *count > 0).unwrap_or(1) as u64;
                    if !turn.shared.requests.push(g, &turn.context, [bell.raw(), count])? {
                        turn.output.put(g, b"busy\n");
                        return Ok(Next::Close);
                    }
                    *turn.state = count;
                    turn.bells.ring_workers(g);
                }
                Ok(None) => return Ok(Next::Input),
                Err(_) => return Ok(Next::Close),
            }
        }
        Ok(Next::Output)
    }

    /// The model: at each step a token for each client of the batch.
    fn work<G: Group>(&mut self, g: &G, worker: &mut Worker<'_, Self>) -> Result<()> {
        let (model, bells) = (*worker.shared, worker.bells);
        let mut step_at = worker.context.now;
        loop {
            // A request that found no room in the batch has rung already.
            let is_idle = model.batch.is_empty(g) && model.requests.is_empty(g);
            if !worker.wait(g, if is_idle { u64::MAX } else { step_at })? {
                return Ok(());
            }
            let context = worker.context;
            while model.batch.len(g) < model.batch.capacity() {
                let Some([bell, count]) = model.requests.pop(g, &context)? else { break };
                model.batch.push(g, &context, [bell, count, 0])?;
            }
            if context.now < step_at {
                continue;
            }
            step_at = context.now + self.pause_ns;
            for _ in 0..model.batch.len(g) {
                let Some([raw, count, made]) = model.batch.pop(g, &context)? else { break };
                let bell = Bell::from_raw(raw);
                // The weights are bytes here, and the next token is the next byte.
                let token = worker.data.get(made as usize % worker.data.len());
                let mut left = count;
                // A client that does not read gets its next token later.
                if model.tokens.at(bell.place()).push(g, &context, [raw, token.into()])? {
                    left -= 1;
                    bells.ring(g, bell);
                }
                if left > 0 && bells.is_open(g, bell) {
                    model.batch.push(g, &context, [raw, left, made + count - left])?;
                }
            }
        }
    }
}

const WEIGHTS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";

#[test]
fn a_model_speaks_to_256_clients_at_a_rhythm() {
    const CLIENTS: usize = 256;
    const TOKENS: usize = 10;
    modes::in_both_ways(|_| {
        let proxy = embed(Config::small()).unwrap();
        let attachment = proxy.attach_cpu().unwrap();
        let program = attachment.load("", 1).unwrap();
        let options = Options::DEFAULT.with_rings(4096, 4096);
        let settings = ServerSettings { out_bytes: 64, ..ServerSettings::DEFAULT };
        let addr = "127.0.0.1:0".parse().unwrap();
        let service = Tokens { pause_ns: 20_000_000, batch: CLIENTS as u64 };
        let server =
            start_with_data(&attachment, &program, (2, 1), addr, options, settings, service, WEIGHTS)
                .unwrap();
        let mut clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let client = TcpStream::connect(server.addr()).unwrap();
                client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                client
            })
            .collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.write_all(format!("{TOKENS}\n").as_bytes()).unwrap();
            // Some say all that they will say.
            if number % 2 == 0 {
                client.shutdown(Shutdown::Write).unwrap();
            }
        }
        for client in &mut clients {
            let mut answer = [0; TOKENS + 1];
            client.read_exact(&mut answer).unwrap();
            assert_eq!((&answer[..TOKENS], answer[TOKENS]), (&WEIGHTS[..TOKENS], b'\n'));
        }
        // Again, but for those that have ended.
        for client in clients.iter_mut().skip(1).step_by(2) {
            client.write_all(b"3\n").unwrap();
        }
        for client in clients.iter_mut().skip(1).step_by(2) {
            let mut answer = [0; 4];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"abc\n");
        }
        let counters = server.stop().unwrap();
        // A turn for what a client says, for its end, for each token: nobody looks again and again.
        let turns: u64 = counters.iter().map(|block| block.turns).sum();
        let expected = CLIENTS * (TOKENS + 3) + CLIENTS / 2 * 6;
        assert!(turns <= expected as u64, "{turns} turns, {expected} expected");
        assert_eq!(counters.iter().map(|block| block.accepted).sum::<u64>(), CLIENTS as u64);
    });
}

/// The documents show this service, as it is.
#[test]
fn the_documents_show_this_service() {
    let (page, source) = (include_str!("../../../../docs/servers.md"), include_str!("tokens.rs"));
    let begins = source.find("/// The settings.").unwrap();
    let ends = source.find("const WEIGHTS").unwrap();
    assert!(page.contains(source[begins..ends].trim_end()), "docs/servers.md differs from the test");
}

/// Requests that wait while the batch is full have rung before: nobody rings when it is empty
/// again.
#[test]
fn who_finds_the_batch_full_is_served_after() {
    modes::in_both_ways(|_| {
        let proxy = embed(Config::small()).unwrap();
        let attachment = proxy.attach_cpu().unwrap();
        let program = attachment.load("", 1).unwrap();
        let service = Tokens { pause_ns: 1_000_000, batch: 1 };
        let (addr, settings) = ("127.0.0.1:0".parse().unwrap(), ServerSettings::DEFAULT);
        let options = Options::DEFAULT;
        let server =
            start_with_data(&attachment, &program, (2, 1), addr, options, settings, service, WEIGHTS)
                .unwrap();
        let mut clients = [(); 4].map(|()| TcpStream::connect(server.addr()).unwrap());
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            client.write_all(b"20\n").unwrap();
        }
        for client in &mut clients {
            client.read_exact(&mut [0; 21]).unwrap();
        }
        server.stop().unwrap();
    });
}
