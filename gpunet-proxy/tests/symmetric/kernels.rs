//! What kernels do with symmetric memory: puts, gets, signals, barriers.

use crate::support::bounded;
use crate::world::{lanes, members};
use gpunet_device::team::{Condition, MAX_VALUE, Rank, Signal, SymmetricPtr, TeamHandle};
use gpunet_device::{Buffer, Error, Group, Kernel, Timeout, kernel_entry};
use gpunet_proxy::FinishPolicy;

const DATA: Signal = Signal(0);

fn buffer(bytes: &mut [u8]) -> Buffer {
    // SAFETY: the callers' memory, which they alone use and which outlives the call.
    unsafe { Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) }
}

#[test]
fn what_a_member_puts_is_there_when_its_signal_is() {
    bounded(|| {
        for lanes_per_group in [1, 5] {
            members(3, |member| {
                let team = member.handle();
                let x = member.team.alloc::<u8>(70_000).expect("memory");
                // SAFETY: the groups below end first.
                let x = unsafe { x.ptr() };
                let (right, left) = (team.rank().right_of(3), team.rank().left_of(3));
                lanes(lanes_per_group, |g| {
                    for (round, len) in (1..).zip([1usize, 16, 1000, 70_000]) {
                        let fill = |rank: Rank| (rank.0 * 50 + round) as u8;
                        let mut source = vec![fill(team.rank()); len];
                        let source = buffer(&mut source);
                        team.put_signal(g, x, source, DATA, u64::from(round), right).expect("put");
                        let seen = team.wait_until(g, DATA, left, u64::from(round)).expect("signalled");
                        assert_eq!(seen, u64::from(round));
                        let mut all = vec![0; len];
                        // Every lane reads all: own part, by a plain look.
                        let own = x.ptr(team, team.rank()).expect("own part");
                        for (at, byte) in all.iter_mut().enumerate() {
                            // SAFETY: inside the part; its source is done with it.
                            *byte = unsafe { own.wrapping_add(at).read_volatile() };
                        }
                        assert!(all.iter().all(|&byte| byte == fill(left)), "round {round}");
                        // Nobody overwrites what another still reads.
                        team.barrier(g).expect("all are there");
                    }
                });
            });
        }
    });
}

#[test]
fn get_reads_what_another_member_has() {
    bounded(|| {
        members(3, |member| {
            let team = member.handle();
            let mut x = member.team.alloc::<u32>(100).expect("memory");
            let own: Vec<u32> = (0..100).map(|at| member.team.rank().0 * 1000 + at).collect();
            x.write(0, &own).expect("written");
            // SAFETY: the group below ends first.
            let pointer = unsafe { x.ptr() };
            let g = &member.solo();
            team.barrier(g).expect("all are there");
            for from in (0..3).map(Rank) {
                let mut bytes = [0; 40];
                assert_eq!(team.get(g, buffer(&mut bytes), pointer.slice(90, 10), from), Ok(40));
                assert_eq!(bytes[..4], (from.0 * 1000 + 90).to_ne_bytes());
                assert_eq!(team.g(pointer.at(99), from), Ok(from.0 * 1000 + 99));
            }
            team.barrier(g).expect("all are there");
            let right = team.rank().right_of(3);
            team.p(pointer.at(7), team.rank().0, right).expect("stored");
            team.quiet(g);
            team.barrier(g).expect("all are there");
            let mut seven = [0];
            x.read(7, &mut seven).expect("read");
            assert_eq!(seven, [team.rank().left_of(3).0]);
            team.barrier(g).expect("all are there");
        });
    });
}

/// Each block adds to a signal of the neighbour; block 0 then waits for all.
#[derive(Clone, Copy)]
#[repr(C)]
struct Add {
    team: TeamHandle,
    blocks: u64,
}

impl Kernel for Add {
    const ENTRY: &'static str = "add";
    fn run<G: Group>(self, g: &G) {
        let Self { team, blocks } = self;
        let (right, left) = (team.rank().right_of(team.size()), team.rank().left_of(team.size()));
        for _ in 0..100 {
            team.signal_add(g, DATA, 1, right).expect("a signal");
        }
        if g.index() == 0 {
            let seen = team.wait_until(g, DATA, left, 100 * blocks);
            assert_eq!(seen, Ok(100 * blocks), "no addition is lost");
        }
    }
}
kernel_entry!(add, "add", Add);

#[test]
fn blocks_of_a_launch_add_to_one_signal() {
    bounded(|| {
        members(2, |member| {
            let program = member.attachment.load("", 1).expect("a program");
            let kernel = |net| {
                // SAFETY: the launch ends before the team.
                let team = unsafe { member.team.handle(net) };
                Add { team, blocks: 4 }
            };
            // SAFETY: the parameters are valid until the launch has ended.
            let launch = unsafe { member.attachment.launch(&program, 4, 1, kernel) }.expect("launched");
            launch.finish(FinishPolicy::Close).expect("no panic");
        });
    });
}

#[test]
fn a_wait_for_any_finds_the_one_that_signals() {
    bounded(|| {
        members(4, |member| {
            let (team, g) = (member.handle(), &member.solo());
            if team.rank() != Rank(0) {
                if team.rank() == Rank(2) {
                    team.signal(g, Signal(5), 9, Rank(0)).expect("a signal");
                }
                return;
            }
            let conditions: Vec<_> =
                (1..4).map(|rank| Condition { value: 9, signal: Signal(5), source: Rank(rank) }).collect();
            assert_eq!(team.wait_until_any(g, &conditions), Ok(1));
            assert_eq!(team.test(g, Signal(5), Rank(2), 9), Ok(true));
            assert_eq!(team.test(g, Signal(5), Rank(2), 10), Ok(false));
            assert_eq!(team.test(g, Signal(5), Rank(1), 1), Ok(false));
        });
    });
}

#[test]
fn a_wait_ends_with_its_timeout_or_its_launch() {
    bounded(|| {
        members(2, |member| {
            let (team, g) = (member.handle(), &member.solo());
            let other = team.rank().right_of(2);
            let soon = team.timeout(Timeout::ms(1));
            assert_eq!(soon.wait_until(g, DATA, other, 1), Err(Error::TimedOut));
            let condition = Condition { value: 1, signal: DATA, source: other };
            assert_eq!(soon.wait_until_any(g, &[condition]), Err(Error::TimedOut));
            if team.rank() == Rank(0) {
                // Nobody else is there. The same barrier is met later.
                assert_eq!(soon.barrier(g), Err(Error::TimedOut));
                assert_eq!(soon.barrier(g), Err(Error::TimedOut));
                member.team.barrier().expect("the host's barrier");
            } else {
                member.team.barrier().expect("the host's barrier");
            }
            for _ in 0..3 {
                team.barrier(g).expect("all are there");
            }
            std::thread::scope(|scope| {
                scope.spawn(|| member.token.cancel());
                assert_eq!(team.wait_until(g, DATA, other, 1), Err(Error::Canceled));
            });
        });
    });
}

#[test]
fn what_cannot_be_is_refused() {
    bounded(|| {
        members(2, |member| {
            let (team, g) = (member.handle(), &member.solo());
            let x = member.team.alloc::<u32>(10).expect("memory");
            let y = member.team.alloc::<u32>(0).expect("no memory");
            // SAFETY: the group ends first.
            let (x, y) = unsafe { (x.ptr(), y.ptr()) };
            let mut bytes = [0; 44];
            let (long, nobody) = (buffer(&mut bytes), Rank(2));
            let refused = Err(Error::InvalidArgument);
            assert_eq!(team.put(g, x, long, Rank(0)), refused, "longer than the destination");
            assert_eq!(team.put(g, x, long.first(4), nobody), refused);
            assert_eq!(team.p(y, 1, Rank(0)), refused, "no element");
            assert_eq!(team.p(x.at(10), 1, Rank(0)), refused, "behind the last element");
            assert_eq!(team.signal(g, Signal(16), 1, Rank(0)), refused);
            assert_eq!(team.signal(g, DATA, MAX_VALUE + 1, Rank(0)), refused);
            assert_eq!(team.signal(g, DATA, 1, nobody), refused);
            assert_eq!(team.wait_until(g, DATA, nobody, 1), Err(Error::InvalidArgument));
            assert_eq!(team.wait_until_any(g, &[]), Err(Error::InvalidArgument));
            team.signal_add(g, DATA, MAX_VALUE, Rank(0)).expect("the largest value");
            assert_eq!(team.signal_add(g, DATA, 1, Rank(0)), refused, "beyond the largest value");
            let other = member.team.split(0, 0).expect("another team");
            // SAFETY: as above.
            let other = unsafe { other.handle(member.net()) };
            assert_eq!(other.put(g, x, long.first(4), Rank(0)), refused, "of another team");
            let _: SymmetricPtr<u32> = x.slice(3, 99);
            assert_eq!((x.slice(3, 99).len(), x.slice(11, 1).len(), x.at(4).bytes()), (7, 0, 24));
            team.barrier(g).expect("all are there");
        });
    });
}
