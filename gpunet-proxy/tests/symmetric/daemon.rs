//! Members that are attached to a daemon.

use crate::support::daemon::Served;
use crate::support::{SOLO, bounded, small};
use crate::world::{anywhere, options};
use gpunet_device::Error;
use gpunet_device::team::{Rank, Signal};
use gpunet_proxy::attach;
use gpunet_proxy::team::Team;

#[test]
fn attachments_of_a_daemon_form_a_team_and_waits_end_with_the_daemon() {
    bounded(|| {
        let served = Served::new(small());
        let [first, second] = [0, 1].map(|_| attach(&served.path, small()).expect("attached"));
        let (first, second) = (first.attach_cpu().expect("attached"), second.attach_cpu().expect("attached"));
        let listener = anywhere();
        let id = listener.id();
        let mut served = Some(served);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let team = Team::join_with(&second, id, Rank(1), 2, &options()).expect("a team");
                let x = team.alloc::<u64>(1).expect("memory");
                let token = second.token().expect("a number");
                // SAFETY: the group ends before the team.
                let (handle, x) = unsafe { (team.handle(token.net()), x.ptr()) };
                handle.p(x, 77, Rank(0)).expect("stored");
                handle.signal(&SOLO, Signal(0), 1, Rank(0)).expect("a signal");
                team.barrier().expect("both are there");
            });
            let team = Team::lead_with(&first, listener, 2, &options()).expect("a team");
            let x = team.alloc::<u64>(1).expect("memory");
            let token = first.token().expect("a number");
            // SAFETY: the group ends before the team.
            let (handle, pointer) = unsafe { (team.handle(token.net()), x.ptr()) };
            assert_eq!(handle.wait_until(&SOLO, Signal(0), Rank(1), 1), Ok(1));
            assert_eq!(handle.g(pointer, Rank(0)), Ok(77));
            drop(served.take());
            assert_eq!(handle.wait_until(&SOLO, Signal(0), Rank(1), 2), Err(Error::NetworkDown));
            team.barrier().expect("a team needs no proxy");
        });
    });
}
