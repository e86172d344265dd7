//! The connection manager: listeners, requests and their answers, the word that a peer is gone.

use super::event::EventChannel;
use super::state::{AcceptedRequest, Answer, Event, HostId, Listener, Pending, Phase, Reply, State};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;

/// Most private data of a request or an answer, as with RDMA_PS_TCP.
pub(super) const PRIVATE_DATA: usize = 56;
/// Private data as a listener sees it, but for iWARP.
const PADDED_REQUEST: usize = 56;
/// Private data as the client sees it in the answer, but for iWARP.
const PADDED_ANSWER: usize = 196;

impl State {
    pub fn listen(
        &mut self,
        host: HostId,
        addr: SocketAddr,
        backlog: u32,
    ) -> io::Result<(u64, Arc<EventChannel>)> {
        if addr.port() == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let overlaps = |other: &SocketAddr| {
            other.port() == addr.port()
                && other.is_ipv4() == addr.is_ipv4()
                && (other.ip() == addr.ip() || other.ip().is_unspecified() || addr.ip().is_unspecified())
        };
        if self.listeners.keys().any(overlaps) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let event = Arc::new(EventChannel::new()?);
        let number = self.new_id();
        let backlog = backlog.max(1) as usize;
        let listener = Listener { number, host, backlog, queue: VecDeque::new(), event: event.clone() };
        self.listeners.insert(addr, listener);
        self.hosts[host.0].identifiers += 1;
        Ok((number, event))
    }

    /// Closes a listener if it is still the one of that number; those who wait are refused.
    pub fn close_listener(&mut self, addr: SocketAddr, number: u64) {
        if self.listeners.get(&addr).is_some_and(|listener| listener.number == number) {
            let queue = self.listeners.remove(&addr).map(|listener| listener.queue).unwrap_or_default();
            for request in queue {
                self.refuse(request, io::ErrorKind::ConnectionRefused);
            }
        }
    }

    /// The place of the listener that a request to `to` means.
    fn place_for(&self, to: SocketAddr) -> Option<SocketAddr> {
        let candidates = [to.ip(), any_of(to.is_ipv6()), any_of(true)];
        let mut candidates = candidates.into_iter().map(|ip| SocketAddr::new(ip, to.port()));
        candidates.find(|addr| self.listeners.contains_key(addr))
    }

    /// Sends a connection request on its way. Returns its number.
    pub fn request(&mut self, pending: Pending) -> u64 {
        let number = self.new_id();
        let delay = self.draw(pending.qp);
        self.requests.insert(number, pending);
        self.schedule(Instant::now() + self.settings.connect_timeout, Event::Unanswered(number));
        self.after(delay, Event::Request(number));
        number
    }

    /// A request comes to the place it was sent to.
    pub fn arrive(&mut self, number: u64) {
        let Some(pending) = self.requests.get(&number) else { return };
        let place = self.place_for(pending.to);
        if self.partitioned || !self.hosts[pending.host.0].powered {
            return;
        }
        let Some(listener) = place.and_then(|addr| self.listeners.get_mut(&addr)) else {
            return self.refuse(number, io::ErrorKind::ConnectionRefused);
        };
        if !self.hosts[listener.host.0].powered {
            return;
        }
        // Requests whose client has gone take no place.
        listener.queue.retain(|request| self.requests.contains_key(request));
        if listener.queue.len() >= listener.backlog {
            return self.refuse(number, io::ErrorKind::ConnectionRefused);
        }
        listener.queue.push_back(number);
        listener.event.raise();
        if let Some(pending) = self.requests.get_mut(&number) {
            pending.passive = Some(listener.host);
        }
    }

    /// Answers a request with an error.
    pub fn refuse(&mut self, number: u64, why: io::ErrorKind) {
        if let Some(pending) = self.requests.remove(&number) {
            let delay = if why == io::ErrorKind::TimedOut {
                std::time::Duration::ZERO
            } else {
                self.draw(pending.qp)
            };
            self.after(delay, Event::Answer(Answer { to: pending.reply, what: Err(why.into()) }));
        }
    }

    /// The request that has waited longest at a listener: its number, ends and private data.
    pub fn next_request(
        &mut self,
        addr: SocketAddr,
        number: u64,
    ) -> Option<(u64, SocketAddr, SocketAddr, Vec<u8>)> {
        let listener = self.listeners.get_mut(&addr).filter(|listener| listener.number == number)?;
        while let Some(request) = listener.queue.pop_front() {
            if listener.queue.is_empty() {
                listener.event.clear();
            }
            if let Some(pending) = self.requests.get(&request) {
                let data = padded(&pending.private_data, PADDED_REQUEST, self.settings.iwarp);
                return Some((request, pending.to, pending.from, data));
            }
        }
        listener.event.clear();
        None
    }

    /// Accepts a request with queue pair `qp`: both ends are connected from here on. Over iWARP the
    /// answer is the last message, else the accept waits until the client has taken it.
    pub fn accept(&mut self, host: HostId, number: u64, qp: u64, data: &[u8], accepted: Reply) {
        let now = Instant::now();
        let reachable = self.requests.get(&number).map(|pending| self.carries(host, pending.host));
        match reachable {
            None => {
                let what = Err(io::ErrorKind::ConnectionAborted.into());
                self.answers.push(Answer { to: accepted, what });
            }
            Some(false) => {
                let what = Err(io::ErrorKind::TimedOut.into());
                let answer = Answer { to: accepted, what };
                self.schedule(now + self.settings.connect_timeout, Event::Answer(answer));
            }
            Some(true) => {
                let Some(pending) = self.requests.remove(&number) else { return };
                self.join(qp, (pending.host, pending.qp));
                self.join(pending.qp, (host, qp));
                let data = padded(data, PADDED_ANSWER, self.settings.iwarp);
                let (there, back) = (self.draw(qp), self.draw(qp));
                let request = AcceptedRequest { client: pending.host, server: host, back, reply: accepted };
                self.accepted.insert(number, request);
                if self.settings.iwarp {
                    self.take_answer(number);
                } else {
                    self.schedule(now + self.settings.connect_timeout, Event::Untaken(number));
                }
                self.after(there, Event::Answer(Answer { to: pending.reply, what: Ok(data) }));
            }
        }
    }

    /// The client of an accepted request takes the answer, and sends its last message.
    pub fn take_answer(&mut self, number: u64) {
        let Some(request) = self.accepted.get(&number) else { return };
        // A message that is lost is as one that was not sent: the accept ends in its time.
        if self.carries(request.client, request.server)
            && let Some(AcceptedRequest { back, reply, .. }) = self.accepted.remove(&number)
        {
            self.after(back, Event::Answer(Answer { to: reply, what: Ok(Vec::new()) }));
        }
    }

    /// Ends an accept whose client does not continue.
    pub fn end_accept(&mut self, number: u64, why: io::ErrorKind) {
        if let Some(request) = self.accepted.remove(&number) {
            self.answers.push(Answer { to: request.reply, what: Err(why.into()) });
        }
    }

    fn join(&mut self, qp: u64, peer: (HostId, u64)) {
        if let Some(qp) = self.qps.get_mut(&qp) {
            qp.peer = Some(peer);
            qp.phase = Phase::Ready;
        }
    }

    /// Destroys a queue pair and notify its peer.
    pub fn disconnect(&mut self, host: HostId, qp: u64) {
        let delay = self.draw(qp);
        if let Some((_, peer)) = self.destroy_qp(qp) {
            self.after(delay, Event::Disconnected { peer: host, qp: peer });
        }
    }

    /// Kills the process of a host: all it has is gone. Peers are notified if `notify`.
    pub fn kill(&mut self, host: HostId, notify: bool) {
        let gone = |at: &HostId| *at == host;
        let listeners: Vec<_> =
            self.listeners.iter().filter(|(_, l)| gone(&l.host)).map(|(addr, l)| (*addr, l.number)).collect();
        for (addr, number) in listeners {
            self.close_listener(addr, number);
        }
        self.requests.retain(|_, pending| !gone(&pending.host));
        let ends = |request: &AcceptedRequest| gone(&request.server) || (notify && gone(&request.client));
        let mut accepted: Vec<_> = self.accepted.iter().filter(|(_, r)| ends(r)).map(|(n, _)| *n).collect();
        accepted.sort_unstable();
        for number in accepted {
            self.end_accept(number, io::ErrorKind::ConnectionAborted);
        }
        let mut shown: Vec<_> = self
            .requests
            .iter()
            .filter(|(_, p)| p.passive.as_ref().is_some_and(gone))
            .map(|(n, _)| *n)
            .collect();
        shown.sort_unstable();
        for number in shown {
            self.refuse(number, io::ErrorKind::ConnectionRefused);
        }
        let mut qps: Vec<_> = self.qps.iter().filter(|(_, qp)| gone(&qp.host)).map(|(n, _)| *n).collect();
        qps.sort_unstable();
        for qp in qps {
            if notify {
                self.disconnect(host, qp);
            } else {
                self.destroy_qp(qp);
            }
        }
    }
}

/// A new place for an answer.
pub(super) fn reply() -> (Reply, oneshot::Receiver<io::Result<Vec<u8>>>) {
    oneshot::channel()
}

fn padded(data: &[u8], len: usize, exact: bool) -> Vec<u8> {
    let mut data = data.to_vec();
    if !exact {
        data.resize(len, 0);
    }
    data
}

fn any_of(v6: bool) -> IpAddr {
    if v6 { IpAddr::from([0_u8; 16]) } else { IpAddr::from([0_u8; 4]) }
}
