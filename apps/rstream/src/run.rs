//! The three programs: server, client, and both in this process.

use crate::args::{BothArgs, ClientArgs, DeviceArgs, ServerArgs, TestArgs};
use crate::kernels::{self, Bound, Kernels, Memory, Positions, Role};
use crate::plan::{Step, plan};
use crate::report::{Report, Row, headings};
use gpunet_abi::Options;
use gpunet_abi::Timeout;
use gpunet_app::cli::{Endpoint, Transport};
use gpunet_app::error::AppError;
use gpunet_app::interrupt::Interrupt;
use gpunet_app::kernel::{RunningKernel, errno_text};
use gpunet_rstream_kernel::record::{Ended, Outcome, Test};
use std::time::Duration;

/// The timeout of kernels' waits within a connection. An accept waits without limit.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How often to check for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Serves clients, one after another.
pub fn run_server(args: &ServerArgs, interrupt: &Interrupt) -> Result<Report, AppError> {
    let mut session = Session::open(&args.test, &args.device, args.transport)?;
    let bound = session.listen(&args.addr)?;
    let mut server = session.end("server")?;
    session.report.say(&format!("listening on {}", bound.addr));
    session.report.say(&headings());
    let mut served = 0;
    while (args.connections == 0 || served < args.connections) && !session.report.interrupted {
        server.positions = Positions::default();
        for connection in 0..session.plan.len() {
            let kernel = session.start(&mut server, Role::Server(bound), connection)?;
            let ended = session.finish(&mut server, kernel, connection, interrupt)?;
            if ended.outcome != Outcome::Good {
                break;
            }
        }
        served += 1;
    }
    Ok(session.close())
}

/// Runs the tests against a server.
pub fn run_client(args: &ClientArgs, interrupt: &Interrupt) -> Result<Report, AppError> {
    let mut addrs = args.addr.resolve()?;
    let mut session = Session::open(&args.test, &args.device, args.transport)?;
    let mut client = session.end("client")?;
    session.report.say(&headings());
    'runs: for _ in 0..args.connections {
        client.positions = Positions::default();
        for connection in 0..session.plan.len() {
            let ended = loop {
                let role = Role::Client(addrs[0], session.options);
                let kernel = session.start(&mut client, role, connection)?;
                session.unreachable_is_no_error = addrs.len() > 1;
                let ended = session.finish(&mut client, kernel, connection, interrupt)?;
                if ended.outcome != Outcome::Connect || addrs.len() == 1 || session.report.interrupted {
                    break ended;
                }
                // A name may resolve to an IPv6 and an IPv4 address of which only one is served.
                addrs.remove(0);
            };
            if ended.outcome != Outcome::Good {
                break 'runs;
            }
        }
    }
    Ok(session.close())
}

/// Runs both ends in this process. The table is the client's.
pub fn run_both(args: &BothArgs, interrupt: &Interrupt) -> Result<Report, AppError> {
    let mut session = Session::open(&args.test, &args.device, args.transport)?;
    session.kernels.fit_both()?;
    let bound = session.listen(&args.addr)?;
    // All memory is allocated before a kernel waits: it is best not to allocate while a kernel
    // waits.
    let (mut server, mut client) = (session.end("server")?, session.end("client")?);
    server.silent = true;
    session.report.say(&format!("listening on {}", bound.addr));
    session.report.say(&headings());
    'runs: for _ in 0..args.connections {
        (server.positions, client.positions) = (Positions::default(), Positions::default());
        for connection in 0..session.plan.len() {
            let serving = session.start(&mut server, Role::Server(bound), connection)?;
            let role = Role::Client(bound.addr, session.options);
            let driving = session.start(&mut client, role, connection)?;
            // The client always ends by itself, because its waits are bounded.
            let drove = session.finish(&mut client, driving, connection, interrupt)?;
            if drove.outcome != Outcome::Good {
                // The server may still wait for it.
                session.give_up(&serving);
            }
            let served = session.finish(&mut server, serving, connection, interrupt)?;
            if drove.outcome != Outcome::Good || served.outcome != Outcome::Good {
                break 'runs;
            }
        }
    }
    Ok(session.close())
}

/// The state that all ends of a program share.
struct Session {
    kernels: Kernels,
    plan: Vec<Vec<Step>>,
    options: Options,
    verify: bool,
    /// Whether another address is left to try.
    unreachable_is_no_error: bool,
    /// Whether the other end has failed. A cancelled call of this end is then not an error of its
    /// own.
    given_up: bool,
    report: Report,
}

/// One end, over its connections.
struct End {
    name: &'static str,
    /// Whether its rows are left out of the output.
    silent: bool,
    /// None while a kernel uses it.
    memory: Option<Memory>,
    positions: Positions,
}

impl Session {
    fn open(test: &TestArgs, device: &DeviceArgs, transport: Transport) -> Result<Self, AppError> {
        let kernels = Kernels::open(device)?;
        let report = Report::new(kernels.device_name(), transport.name(), test.verify, test.json);
        let limit = Timeout::from(TIMEOUT);
        let options = Options::DEFAULT
            .with_rings(device.ring, device.ring)
            .with_transport(transport.kind())
            .with_timeouts(limit, limit);
        Ok(Self {
            kernels,
            plan: plan(test),
            options,
            verify: test.verify,
            unreachable_is_no_error: false,
            given_up: false,
            report,
        })
    }

    fn listen(&self, addr: &Endpoint) -> Result<Bound, AppError> {
        addr.try_each(|addr| self.kernels.listen(addr, self.options))
    }

    fn end(&self, name: &'static str) -> Result<End, AppError> {
        let steps = self.plan.iter().flatten();
        let size = steps.map(|step| step.test.size).max().unwrap_or(0);
        let tests = self.plan.iter().map(Vec::len).max().unwrap_or(0);
        let memory = self.kernels.memory(size, tests)?;
        Ok(End { name, silent: false, memory: Some(memory), positions: Positions::default() })
    }

    /// Starts one end of one connection of the plan.
    fn start(&self, end: &mut End, role: Role, connection: usize) -> Result<RunningKernel<Memory>, AppError> {
        let tests: Vec<Test> = self.plan[connection].iter().map(|step| step.test).collect();
        let Some(memory) = end.memory.take() else {
            unreachable!("`finish` puts it back, and an error in between ends the program")
        };
        self.kernels.start(memory, role, &tests, end.positions, self.verify)
    }

    /// Waits for the end, prints its tests, and counts how it ended.
    fn finish(
        &mut self,
        end: &mut End,
        kernel: RunningKernel<Memory>,
        connection: usize,
        interrupt: &Interrupt,
    ) -> Result<Ended, AppError> {
        while !kernel.wait(LOOK)? {
            if interrupt.asked() {
                kernel.end()?;
            }
        }
        let (memory, ended, times) = kernels::finish(kernel)?;
        self.report.interrupted |= interrupt.asked();
        for (step, nanoseconds) in self.plan[connection].iter().zip(times) {
            let row = Row::new(end.name, step, nanoseconds);
            if !end.silent && !self.report.json {
                self.report.say(&row.to_string());
            }
            self.report.tests.push(row);
        }
        self.report.bytes_received += ended.received - end.positions.received;
        end.positions = Positions { sent: ended.sent, received: ended.received };
        end.memory = Some(memory);
        self.count(end.name, &ended);
        Ok(ended)
    }

    fn count(&mut self, end: &str, ended: &Ended) {
        let canceled = ended.detail == gpunet_abi::Error::Canceled.errno() as u64;
        let called_off = (self.report.interrupted || self.given_up) && canceled;
        match ended.outcome {
            Outcome::Good => self.report.connections += 1,
            Outcome::Accept | Outcome::Connect | Outcome::Send | Outcome::Recv if called_off => {}
            Outcome::Connect if self.unreachable_is_no_error => {}
            _ => {
                self.report.errors += 1;
                eprintln!("gpunet-rstream: {end}: {}", explain(ended));
            }
        }
    }

    /// Cancels an end whose other end has failed, unless it ends soon by itself.
    fn give_up(&mut self, kernel: &RunningKernel<Memory>) {
        const SOON: Duration = Duration::from_secs(2);
        if let Ok(false) = kernel.wait(SOON) {
            self.given_up = true;
            kernel.cancel();
        }
    }

    /// Waits until all sent bytes have arrived, and then stops everything.
    fn close(self) -> Report {
        let closed = self.kernels.close();
        if closed.undelivered > 0 && self.report.errors == 0 && !self.report.interrupted {
            eprintln!("gpunet-rstream: {} bytes were not delivered", closed.undelivered);
        }
        self.report
    }
}

fn explain(ended: &Ended) -> String {
    let Ended { outcome, detail, tests, sent, received } = *ended;
    let place = format!("in test {tests}, with {sent} bytes sent and {received} received");
    let error = || errno_text(detail as i32);
    match outcome {
        Outcome::Good => "good".to_owned(),
        Outcome::NotRun => "the kernel did not run".to_owned(),
        Outcome::Accept => format!("cannot accept: {}", error()),
        Outcome::Connect => format!("cannot connect: {}", error()),
        Outcome::Send => format!("send failed {place}: {}", error()),
        Outcome::Recv => format!("receive failed {place}: {}", error()),
        Outcome::Ended => format!("the other end ended its stream {place}"),
        Outcome::Differs => format!("data verification failed at byte {detail} of what was received"),
        Outcome::Extra => format!("{detail} more bytes came than agreed; do both ends have the same counts?"),
    }
}
