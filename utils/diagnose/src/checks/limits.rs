//! What this process may use.

use super::{no_system, size};
use crate::check::Check;
use crate::facts::{Facts, Limits};

/// Rings of rc streams are registered with the card: two attachments' worth.
const LOCKED: u64 = 512 << 20;
/// A descriptor for each TCP connection of an attachment (4,096 sockets), and some for the program.
const FILES: u64 = 4096 + 256;
/// Connections that may wait; Linux's default since 5.4 is 4,096, before 128.
const BACKLOG: u64 = 1024;

pub fn checks(facts: &Facts) -> Vec<Check> {
    let limits = &facts.limits;
    let with_cards = !facts.cards.is_empty();
    vec![memfd(facts), memlock(limits, with_cards), files(limits), shm(limits), somaxconn(limits)]
}

fn memfd(facts: &Facts) -> Check {
    const ID: &str = "limits.memfd";
    match &facts.libraries.system {
        Err(why) => no_system(ID, why),
        Ok(system) => match &system.memfd {
            Ok(()) => Check::ok(ID, "1 MiB made, sealed and mapped"),
            Err(why) => Check::missing(
                ID,
                why.clone(),
                "allow memfd_create (a container's seccomp profile) and give memory",
            )
            .fatal(),
        },
    }
}

fn memlock(limits: &Limits, with_cards: bool) -> Check {
    const ID: &str = "limits.memlock";
    let Some(locked) = limits.locked else {
        return Check::unknown(ID, "/proc/self/limits cannot be read", "mount /proc");
    };
    if limits.may_lock {
        return Check::ok(ID, format!("{} (CAP_IPC_LOCK lifts it)", size(locked)));
    }
    if locked >= LOCKED {
        return Check::ok(ID, size(locked));
    }
    let text = format!("{}: the rings of rc streams do not fit ({})", size(locked), size(LOCKED));
    let check = Check::degraded(
        ID,
        text,
        "ulimit -l unlimited, LimitMEMLOCK=infinity in a service, --ulimit memlock=-1",
    );
    // CUDA's registration does not count there.
    if with_cards {
        check
    } else {
        Check { evidence: format!("{}; only RDMA needs more", size(locked)), ..check }.harmless()
    }
}

fn files(limits: &Limits) -> Check {
    const ID: &str = "limits.files";
    match limits.files {
        None => Check::unknown(ID, "/proc/self/limits cannot be read", "mount /proc"),
        Some((soft, _)) if soft >= FILES => Check::ok(ID, format!("{soft} files")),
        Some((soft, hard)) => Check::degraded(
            ID,
            format!("{soft} files (at most {hard}): not enough for 4096 sockets over TCP"),
            if soft < hard {
                let most = FILES.max(8192).min(hard);
                format!("ulimit -n {most} before the program, or LimitNOFILE= in its service")
            } else {
                "raise the hard limit too: ulimit -n 8192 as root, LimitNOFILE= in its service, a container's \
                 --ulimit nofile="
                    .to_owned()
            },
        ),
    }
}

/// gpunet's memory is in memory files, which `/dev/shm` does not limit: a fact for other programs'
/// sake.
fn shm(limits: &Limits) -> Check {
    const ID: &str = "limits.shm";
    match limits.shm {
        Some((all, free)) => Check::ok(
            ID,
            format!("{} of {} free; gpunet takes none of it (memory files)", size(free), size(all)),
        ),
        None => Check::unknown(ID, "/dev/shm cannot be read", "nothing for gpunet; NCCL and others need it")
            .harmless(),
    }
}

fn somaxconn(limits: &Limits) -> Check {
    const ID: &str = "limits.somaxconn";
    match limits.somaxconn {
        None => Check::unknown(ID, "/proc/sys/net/core/somaxconn cannot be read", "mount /proc"),
        Some(n) if n >= BACKLOG => Check::ok(ID, format!("{n} connections")),
        Some(n) => Check::degraded(
            ID,
            format!("{n} connections, whatever backlog a kernel asks for"),
            "sysctl net.core.somaxconn=4096 (as root)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Impact, Status};

    #[test]
    fn locked_memory_matters_where_there_is_a_card_and_no_capability() {
        let limits = Limits { locked: Some(8 << 20), ..Limits::default() };
        assert_eq!(memlock(&limits, true).impact, Impact::Costs);
        assert_eq!(memlock(&limits, false).impact, Impact::Nothing);
        assert_eq!(memlock(&limits, false).status, Status::Degraded);
        assert_eq!(memlock(&Limits { may_lock: true, ..limits }, true).status, Status::Ok);
        assert_eq!(memlock(&Limits { locked: Some(u64::MAX), ..Limits::default() }, true).status, Status::Ok);
        assert_eq!(memlock(&Limits::default(), true).status, Status::Unknown);
    }

    #[test]
    fn few_files_and_short_backlogs_are_told() {
        let few = files(&Limits { files: Some((1024, 4096)), ..Limits::default() });
        assert_eq!(few.status, Status::Degraded);
        assert!(few.advice.expect("advice").contains("ulimit -n 4096"));
        let hard = files(&Limits { files: Some((6, 6)), ..Limits::default() });
        assert!(hard.advice.expect("advice").contains("hard limit"));
        assert_eq!(files(&Limits { files: Some((65_536, 65_536)), ..Limits::default() }).status, Status::Ok);
        assert_eq!(somaxconn(&Limits { somaxconn: Some(128), ..Limits::default() }).status, Status::Degraded);
    }

    #[test]
    fn without_memory_files_nothing_works() {
        let mut facts = crate::facts::none();
        assert_eq!(memfd(&facts).status, Status::Unknown);
        let mut libraries = crate::libraries::nothing();
        let system = libraries.system.as_mut().expect("asked");
        system.memfd = Err("memfd_create: operation not permitted".to_owned());
        facts.libraries = libraries;
        assert_eq!(memfd(&facts).impact, Impact::Fatal);
    }
}
