//! The proxy's threads: how they start, and how they stop.

use crate::engine::control::{Control, ShardLink};
use crate::engine::control_queue::{ControlSender, control_queue};
use crate::engine::pulse::{Heart, Load, Pulse, Worker};
use crate::engine::shard::{Shard, ShardSetup, WatchedThread};
use crate::model::attachment_state::AttachmentState;
use crate::model::config::Config;
use crate::model::error::{EmbedError, SnapshotError};
use crate::model::message::{ANSWER_TIMEOUT, Command, Message, send_to};
use crate::model::snapshot::Snapshot;
use crate::os::cpus;
use crate::os::descriptors;
use crate::os::doorbell::Bell;
use crate::os::thread_pool::ThreadPool;
use crossbeam_channel::RecvTimeoutError;
use gpu_usermap::threads;
use gpunet_core::ids::AttachmentId;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The proxy's threads and how to reach them.
pub(crate) struct Runtime {
    pub(crate) config: Config,
    pub(crate) messages: ControlSender,
    pub(crate) shards: Vec<ShardLink>,
    pub(crate) heart: Arc<Heart>,
    next_id: AtomicU32,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Data threads that have stopped. Their connections close together, once no data thread runs:
    /// another would take the end of a connection for the peer's.
    stopped: Arc<Mutex<Vec<Shard>>>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Starts the threads of a proxy.
pub(crate) fn start(config: Config) -> Result<Arc<Runtime>, EmbedError> {
    config.check()?;
    let config = Config { data_threads: config.thread_count(), ..config };
    let start = |what| move |source| EmbedError::Start { what, source };
    let (messages, inbox) = control_queue();
    let (mut workers, mut shards, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let loads: Arc<[_]> = (0..config.data_threads).map(|_| Arc::new(Load::default())).collect();
    let bells = (0..config.data_threads).map(|_| Bell::new().map(Arc::new)).collect::<io::Result<Vec<_>>>();
    let bells = bells.map_err(start("an eventfd"))?;
    let watched_threads: Arc<[_]> = bells.iter().cloned().map(WatchedThread::new).collect();
    for (index, bell) in bells.into_iter().enumerate() {
        let (commands, receiver) = crossbeam_channel::unbounded();
        let (pulse, load) = (Arc::new(Pulse::default()), loads[index].clone());
        let setup = ShardSetup {
            index,
            spin: config.spin,
            latency: config.latency,
            commands: receiver,
            control: messages.clone(),
            bell: bell.clone(),
            pulse: pulse.clone(),
            loads: loads.clone(),
            watched_threads: watched_threads.clone(),
        };
        shards.push(Shard::new(setup).map_err(start("an epoll set"))?);
        let wake = {
            let bell = bell.clone();
            Box::new(move || bell.ring())
        };
        workers.push(Worker { name: format!("data thread {index}"), pulse, wake });
        links.push(ShardLink { commands, bell, load });
    }
    let runtime = descriptors::runtime().map_err(start("the control plane's runtime"))?;
    let pulse = Arc::new(Pulse::default());
    let ping = messages.clone();
    let wake = Box::new(move || drop(ping.send(Message::Ping)));
    workers.push(Worker { name: "control thread".to_owned(), pulse: pulse.clone(), wake });
    let (heart, period) = (Arc::new(Heart::default()), config.heartbeat / 8);
    let beating = heart.clone();
    // From here on an error stops the threads that were started, by the drop.
    let threads = Mutex::new(Vec::new());
    let inner = Runtime {
        config,
        messages,
        shards: links,
        heart,
        next_id: AtomicU32::new(0),
        threads,
        stopped: Arc::default(),
    };
    for (index, shard) in shards.into_iter().enumerate() {
        let cpu = inner.config.cpus.iter().cycle().nth(index).copied();
        let stopped = inner.stopped.clone();
        let body = move || {
            // It was possible a moment ago; if it no longer is, the thread runs where it can.
            if let Some(cpu) = cpu
                && let Err(error) = cpus::pin(cpu)
            {
                tracing::warn!(cpu, %error, "a data thread is not pinned");
            }
            let shard = shard.run();
            stopped.lock().unwrap_or_else(PoisonError::into_inner).push(shard);
        };
        inner.spawn(format!("gpunet-data-{index}"), body).map_err(start("a data thread"))?;
    }
    let (pool, pool_threads) = ThreadPool::start("gpunet-memory").map_err(start("a thread for memory"))?;
    let (links, own, config) = (inner.shards.clone(), inner.messages.clone(), inner.config.clone());
    let control = move || {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, Control::new(links, own, pool, &config).run(inbox, pulse));
        // Tasks hold the pool.
        drop(local);
        pool_threads.join();
    };
    inner.spawn("gpunet-control".to_owned(), control).map_err(start("the control thread"))?;
    let beat = move || beating.run(period, &workers);
    inner.spawn("gpunet-heartbeat".to_owned(), beat).map_err(start("the heartbeat thread"))?;
    Ok(Arc::new(inner))
}

impl Runtime {
    fn spawn(&self, name: String, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = threads::spawn(name, body)?;
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// A snapshot without the uptime.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        let (done, snapshot) = crossbeam_channel::bounded(1);
        // A proxy that stops drops what it has not answered.
        let _ = self.messages.send(Message::Snapshot { of: None, done: send_to(done) });
        snapshot.recv_timeout(ANSWER_TIMEOUT).map_err(|error| match error {
            RecvTimeoutError::Disconnected => SnapshotError::Stopped,
            RecvTimeoutError::Timeout => SnapshotError::NoAnswer,
        })
    }

    /// Returns whether a thread has ended that was not told to: it has panicked.
    pub(crate) fn has_failed(&self) -> bool {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.iter().any(JoinHandle::is_finished)
    }

    pub(crate) fn next_id(&self) -> AttachmentId {
        // Ordering: Relaxed; the number only has to differ.
        AttachmentId(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn add(&self, attachment: &Arc<AttachmentState>) {
        self.heart.add(attachment.clone());
        let _ = self.messages.send(Message::Attach(attachment.clone()));
        for shard in &self.shards {
            shard.send(Command::Attach(attachment.clone()));
        }
    }

    pub(crate) fn stop(&self) {
        // Stop the heartbeat first: it would take the workers' end for a failure and report it.
        self.heart.stop();
        for shard in &self.shards {
            shard.send(Command::Stop);
        }
        let _ = self.messages.send(Message::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let own = std::thread::current().id();
        // An answer holds the proxy, so the control thread may be the last that does. It does not
        // wait for itself: it ends when it takes the next message.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            // A worker's panic was already reported, and its sockets said ENETDOWN.
            let _ = thread.join();
        }
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // All threads end within a turn: nothing is left to flush once the attachments are closed.
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_control_thread_may_be_the_last_that_holds_the_proxy() {
        let runtime = start(Config::small()).unwrap();
        let messages = runtime.messages.clone();
        let (go, may_drop) = crossbeam_channel::bounded(1);
        let (stopped, has_stopped) = crossbeam_channel::bounded(1);
        let last = runtime.clone();
        let done = Box::new(move |_| {
            let _ = may_drop.recv();
            assert!(Arc::into_inner(last).is_some(), "another thread holds the proxy");
            let _ = stopped.send(());
        });
        messages.send(Message::Usage { attachment: AttachmentId(0), done }).unwrap();
        drop(runtime);
        go.send(()).unwrap();
        assert_eq!(has_stopped.recv_timeout(Duration::from_secs(60)), Ok(()));
    }
}
