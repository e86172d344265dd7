//! Metrics for Prometheus, in the text format of OpenMetrics.

use crate::serve::{Running, read};
use gpunet_proxy::daemon::{Daemon, KernelRecords};
use gpunet_proxy::device::abi::waiting::Call;
use gpunet_proxy::snapshot::{Carried, Snapshot, State, Transport};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Connections at a time: enough for some scrapers and for some that are hostile.
const CONNECTIONS: usize = 32;
/// How long a client may take to send its request, and then to read the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection is left alone while others wait for its place; a real client has sent its
/// request by then. So hundreds that send nothing are gone within a second or two.
const GRACE: Duration = Duration::from_millis(50);

/// Series of the counters of all kernels at most.
const COUNTERS: usize = 1024;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The least time between two snapshots: everyone who reaches the port can request one, and each
/// costs the control plane time.
const INTERVAL: Duration = Duration::from_millis(50);

/// Serves metrics until the runtime ends.
pub async fn serve(listener: TcpListener, daemon: Running) {
    let (mut guests, source) =
        (Guests::default(), Arc::new(Source { daemon, last: Mutex::default(), kernels: Mutex::default() }));
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                // Most likely out of descriptors, which is temporary.
                tracing::warn!(%error, "cannot take a connection for metrics");
                tokio::time::sleep(Duration::from_secs(1)).await;
                continue;
            }
        };
        guests.make_room().await;
        guests.add(client, source.clone());
    }
}

/// Where the metrics come from.
struct Source {
    daemon: Running,
    /// When the last snapshot was taken, and what it was.
    last: Mutex<Option<(Instant, Option<Arc<Moment>>)>>,
    /// The same of the kernels' records, and how long that took.
    kernels: Mutex<Option<(Instant, Duration, Vec<KernelRecords>)>>,
}

/// What metrics are made of.
struct Moment {
    snapshot: Snapshot,
    kernels: Vec<KernelRecords>,
}

impl Source {
    /// Returns a snapshot that is no older than the call. Callers that wait at the same time share
    /// one.
    async fn snapshot(&self) -> Option<Arc<Moment>> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((taken, snapshot)) = &*last {
            if *taken >= asked {
                return snapshot.clone();
            }
            sleep_until(*taken + INTERVAL).await;
        }
        let taken = Instant::now();
        let snapshot = match read(&self.daemon, Daemon::request_snapshot) {
            Some(snapshot) => snapshot.await,
            None => None,
        };
        let moment = match snapshot {
            Some(snapshot) => Some(Arc::new(Moment { snapshot, kernels: self.kernels().await })),
            None => None,
        };
        *last = Some((taken, moment.clone()));
        moment
    }

    /// What kernels have recorded. Large rings take a while to read: it is done in a tenth of the
    /// time at most, and answers between are those of before.
    async fn kernels(&self) -> Vec<KernelRecords> {
        let mut last = self.kernels.lock().await;
        if let Some((taken, took, kernels)) = &*last
            && taken.elapsed() < *took * 9
        {
            return kernels.clone();
        }
        let began = Instant::now();
        let found = match read(&self.daemon, Daemon::request_kernel_records) {
            Some(found) => found.await.unwrap_or_default(),
            None => Vec::new(),
        };
        *last = Some((Instant::now(), began.elapsed(), found.clone()));
        found
    }
}

/// The connections that are open.
#[derive(Default)]
struct Guests {
    tasks: JoinSet<()>,
    /// The oldest first. Some may have ended.
    all: VecDeque<Guest>,
}

/// A connection.
struct Guest {
    task: AbortHandle,
    since: Instant,
    /// Whether its request has arrived and the answer is being prepared.
    answering: Arc<AtomicBool>,
}

impl Guest {
    fn can_go(&self) -> bool {
        // Ordering: Relaxed; nothing else is read after it.
        !self.answering.load(Ordering::Relaxed)
    }
}

impl Guests {
    fn add(&mut self, client: TcpStream, source: Arc<Source>) {
        let answering = Arc::<AtomicBool>::default();
        let task = self.tasks.spawn(converse(client, source, answering.clone()));
        self.all.push_back(Guest { task, since: Instant::now(), answering });
    }

    /// Waits until there is room for one more. If there is none, the oldest that has not sent a
    /// request, or does not read its answer, is closed.
    async fn make_room(&mut self) {
        loop {
            while self.tasks.try_join_next().is_some() {}
            self.all.retain(|guest| !guest.task.is_finished());
            if self.all.len() < CONNECTIONS {
                return;
            }
            let Some(at) = self.all.iter().position(Guest::can_go) else {
                // Answering takes a moment only.
                self.tasks.join_next().await;
                continue;
            };
            let ended = timeout_at(self.all[at].since + GRACE, self.tasks.join_next()).await;
            // Its request may have arrived by now.
            if ended.is_err() && self.all[at].can_go() {
                self.all[at].task.abort();
                self.all.remove(at);
            }
        }
    }
}

/// Answers one request and closes, so that no client keeps a place by repeating requests.
async fn converse(client: TcpStream, source: Arc<Source>, answering: Arc<AtomicBool>) {
    let answered = Notify::new();
    let service = service_fn(|request| async {
        answering.store(true, Ordering::Relaxed);
        let response = answer(request, &source).await;
        answering.store(false, Ordering::Relaxed);
        answered.notify_one();
        response
    });
    let mut server = http1::Builder::new();
    // A client that shuts its sending half down after the request still reads the answer.
    server.half_close(true).keep_alive(false).timer(TokioTimer::new()).header_read_timeout(TIMEOUT);
    let too_long = async {
        answered.notified().await;
        tokio::time::sleep(TIMEOUT).await;
    };
    tokio::select! {
        served = server.serve_connection(TokioIo::new(client), service) => {
            if let Err(error) = served {
                tracing::debug!(%error, "a connection for metrics ended");
            }
        }
        () = too_long => tracing::debug!("a client does not take its metrics"),
    }
}

async fn answer(request: Request<Incoming>, source: &Source) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            match source.snapshot().await.map(|moment| render(&moment.snapshot, &moment.kernels)) {
                Some(Ok(text)) => (StatusCode::OK, text),
                Some(Err(_)) => (StatusCode::INTERNAL_SERVER_ERROR, "cannot write metrics\n".to_owned()),
                None => (StatusCode::SERVICE_UNAVAILABLE, "the proxy does not answer\n".to_owned()),
            }
        }
        (_, "/metrics") => (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, "metrics are at /metrics\n".to_owned()),
    };
    let kind = if status == StatusCode::OK { OPEN_METRICS } else { "text/plain; charset=utf-8" };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, kind.parse().unwrap_or(hyper::header::HeaderValue::from_static("text/plain")));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    Ok(response)
}

type Labels = Vec<(&'static str, &'static str)>;

/// A snapshot and what kernels have recorded, as text.
fn render(snapshot: &Snapshot, kernels: &[KernelRecords]) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("gpunet");
    let gauge = |value: u64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        gauge
    };
    let counter = |value: u64| {
        let counter = Counter::<u64>::default();
        counter.inc_by(value);
        counter
    };
    let sum = |what: fn(&gpunet_proxy::snapshot::Client) -> u64| snapshot.clients.iter().map(what).sum();
    let totals = &snapshot.totals;
    let uptime = gauge(snapshot.uptime_ms / 1000);
    registry.register_with_unit("uptime", "How long the daemon runs", Unit::Seconds, uptime);
    registry.register("clients", "Devices that are attached", gauge(snapshot.clients.len() as u64));
    registry.register("sockets", "Sockets by state and transport", sockets(snapshot));
    registry.register(
        "host_sockets",
        "Sockets that host programs have opened",
        gauge(of_sockets(snapshot, |s| s.host)),
    );
    registry.register(
        "taken",
        "Directions of sockets that host programs have taken from the kernels",
        taken(snapshot),
    );
    let (ring, used) = (sum(|client| client.ring_bytes), sum(|client| client.ring_bytes_used));
    registry.register_with_unit("ring", "Ring memory of all clients", Unit::Bytes, gauge(ring));
    registry.register_with_unit("ring_used", "Ring memory in use", Unit::Bytes, gauge(used));
    registry.register("streams_opened", "Streams opened", counter(totals.opened));
    registry.register("streams_closed", "Streams closed and forgotten", counter(totals.closed));
    let help = "Bytes that a send accepted and that did not reach the peer's side";
    registry.register_with_unit("undelivered", help, Unit::Bytes, counter(totals.undelivered));
    let by_transport = |what: fn(&Carried) -> u64| {
        let family = Family::<Labels, Counter>::default();
        let carried =
            [(Transport::Tcp, totals.tcp), (Transport::Peer, totals.peer), (Transport::Rc, totals.rc)];
        for (transport, carried) in &carried {
            family.get_or_create(&vec![("transport", transport.name())]).inc_by(what(carried));
        }
        family
    };
    let (sent, received) = (by_transport(|carried| carried.sent), by_transport(|carried| carried.received));
    registry.register_with_unit("sent", "Bytes from the devices", Unit::Bytes, sent);
    registry.register_with_unit("received", "Bytes to the devices", Unit::Bytes, received);
    register_waits(&mut registry, snapshot);
    register_kernels(&mut registry, kernels);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// What blocks wait for: every call, also those that nobody waits in now.
fn register_waits(registry: &mut Registry, snapshot: &Snapshot) {
    let (blocks, longest) =
        (Family::<Labels, Gauge>::default(), Family::<Labels, Gauge<f64, AtomicU64>>::default());
    for call in Call::ALL {
        let waits = || snapshot.waits.iter().filter(|wait| wait.call == call.name());
        let labels = vec![("call", call.name())];
        blocks.get_or_create(&labels).set(waits().count() as i64);
        let us = waits().map(|wait| wait.waited_us).max().unwrap_or(0);
        longest.get_or_create(&labels).set(us as f64 / 1e6);
    }
    registry.register("waiting_blocks", "Blocks of kernels that wait, by call", blocks);
    let help = "How long the block has waited that has waited longest, by call";
    registry.register_with_unit("longest_wait", help, Unit::Seconds, longest);
}

/// Labels whose values programs choose.
type ClientLabels = Vec<(&'static str, String)>;

/// What kernels of each client have recorded.
fn register_kernels(registry: &mut Registry, kernels: &[KernelRecords]) {
    let (written, lost) =
        (Family::<ClientLabels, Counter>::default(), Family::<ClientLabels, Counter>::default());
    let (counters, cut) = (Family::<ClientLabels, Gauge>::default(), Gauge::<i64>::default());
    let (mut room, mut left_out) = (COUNTERS, 0);
    for of_client in kernels {
        let labels = vec![("client", of_client.client.to_string()), ("command", of_client.command.clone())];
        let with = |name, value: &str| [labels.clone(), vec![(name, value.to_owned())]].concat();
        written.get_or_create(&labels).inc_by(of_client.written);
        for (reason, count) in [
            ("overwritten", of_client.overwritten),
            ("refused", of_client.refused),
            ("malformed", of_client.malformed),
        ] {
            lost.get_or_create(&with("reason", reason)).inc_by(count);
        }
        for counter in &of_client.counters {
            if room == 0 {
                left_out = 1;
                break;
            }
            room -= 1;
            counters.get_or_create(&with("name", &counter.name)).set(counter.value);
        }
        left_out |= i64::from(of_client.is_cut);
    }
    cut.set(left_out);
    registry.register("kernel_records", "Records that kernels have written", written);
    let help = "Records that were overwritten before gpunetd looked, found no room, or cannot be read";
    registry.register("kernel_records_lost", help, lost);
    let help = "Counters of kernels: the sum of the values that their groups have noted last";
    registry.register("kernel_counter", help, counters);
    registry.register("kernel_counters_cut", "Whether counters of kernels are left out", cut);
}

/// How many sockets are so.
fn of_sockets(snapshot: &Snapshot, so: fn(&gpunet_proxy::snapshot::Socket) -> bool) -> u64 {
    snapshot.sockets.iter().filter(|socket| so(socket)).count() as u64
}

/// Directions that are taken.
fn taken(snapshot: &Snapshot) -> Family<Labels, Gauge> {
    let family = Family::<Labels, Gauge>::default();
    let counts =
        [("send", of_sockets(snapshot, |s| s.send_taken)), ("recv", of_sockets(snapshot, |s| s.recv_taken))];
    for (direction, count) in counts {
        family.get_or_create(&vec![("direction", direction)]).set(count as i64);
    }
    family
}

/// Every combination, also those that do not occur now: a series that comes and goes is hard to
/// read.
fn sockets(snapshot: &Snapshot) -> Family<Labels, Gauge> {
    let family = Family::<Labels, Gauge>::default();
    for state in State::ALL {
        for transport in Transport::ALL {
            let of_both = |socket: &&gpunet_proxy::snapshot::Socket| {
                socket.state == *state && socket.transport == *transport
            };
            let count = snapshot.sockets.iter().filter(of_both).count();
            let labels = vec![("state", state.name()), ("transport", transport.name())];
            family.get_or_create(&labels).set(count as i64);
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_proxy::snapshot::Totals;

    #[test]
    fn a_snapshot_becomes_series() {
        let totals = Totals {
            opened: 7,
            undelivered: 3,
            peer: Carried { sent: u64::MAX, received: 5 },
            ..Totals::default()
        };
        let text = render(&Snapshot { totals, uptime_ms: 61_500, ..Snapshot::default() }, &[]).unwrap();
        for line in [
            "# TYPE gpunet_uptime_seconds gauge",
            "gpunet_uptime_seconds 61",
            "gpunet_clients 0",
            "gpunet_sockets{state=\"listen\",transport=\"none\"} 0",
            "gpunet_host_sockets 0",
            "gpunet_taken{direction=\"recv\"} 0",
            "gpunet_streams_opened_total 7",
            "gpunet_undelivered_bytes_total 3",
            "gpunet_sent_bytes_total{transport=\"peer\"} 18446744073709551615",
            "gpunet_received_bytes_total{transport=\"peer\"} 5",
            "gpunet_received_bytes_total{transport=\"rc\"} 0",
            "gpunet_waiting_blocks{call=\"accept\"} 0",
            "gpunet_kernel_counters_cut 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn waits_are_counted_by_call() {
        let wait = |call: &str, waited_us| gpunet_proxy::snapshot::Wait {
            client: 1,
            launch: 0,
            block: 0,
            call: call.to_owned(),
            slot: None,
            waited_us,
        };
        let waits = vec![wait("recv", 1_500_000), wait("recv", 20), wait("poll group", 1000)];
        let text = render(&Snapshot { waits, ..Snapshot::default() }, &[]).unwrap();
        for line in [
            "# TYPE gpunet_waiting_blocks gauge",
            "gpunet_waiting_blocks{call=\"recv\"} 2",
            "gpunet_waiting_blocks{call=\"poll group\"} 1",
            "gpunet_waiting_blocks{call=\"send\"} 0",
            "# TYPE gpunet_longest_wait_seconds gauge",
            "gpunet_longest_wait_seconds{call=\"recv\"} 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("gpunet_waiting_blocks{").count(), Call::ALL.len());
    }
}
