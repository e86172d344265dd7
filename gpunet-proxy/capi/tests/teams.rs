//! Teams through the C interface: members are threads, and the calls of kernels are made by these.
//! `tests/c/teams.c` goes further, with processes.

use gpunet::*;
use gpunet_device::team::TeamHandle;
use gpunet_posix::capi::*;
use gpunet_posix::team::{SUM, UINT64};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::ptr::{null, null_mut};

const SETTINGS: &CStr = c"sockets = 64\nshared_rings = 8_388_608\nrc = 'off'";
const MEMBERS: u32 = 3;

fn reason() -> String {
    // SAFETY: a text that is valid until this thread asks again.
    unsafe { CStr::from_ptr(gpunet_host_last_error()) }.to_string_lossy().into_owned()
}

/// A place to meet, and the id by which members join there.
fn meeting() -> (*mut gpunet_host_team_listener_t, *mut c_char) {
    let place = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(Ipv4Addr::LOCALHOST.octets()) },
        sin_zero: [0; 8],
    };
    let (mut listener, mut id) = (null_mut(), null_mut());
    let len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: pointers to this function's own variables.
    unsafe {
        assert_eq!(
            gpunet_host_team_listen((&raw const place).cast(), len, &raw mut listener),
            0,
            "{}",
            reason()
        );
        assert_eq!(gpunet_host_team_id(listener, &raw mut id), 0);
    }
    (listener, id)
}

/// A handle or a text of the library: a number, for another thread.
struct Passed<T>(*mut T);
// SAFETY: any thread makes any call with a handle, and reads a text that nobody changes.
unsafe impl<T> Send for Passed<T> {}

/// Joins: member 0 with the listener, the others by the id.
unsafe fn join(
    attachment: *mut gpunet_host_attachment_t,
    (listener, id): (*mut gpunet_host_team_listener_t, *mut c_char),
    rank: u32,
) -> *mut gpunet_host_team_t {
    let mut team = null_mut();
    // SAFETY: handles, a text, and this function's own variable.
    let joined = unsafe {
        if rank == 0 {
            gpunet_host_team_lead(attachment, listener, MEMBERS, null(), &raw mut team)
        } else {
            gpunet_host_team_join(attachment, id, rank, MEMBERS, null(), &raw mut team)
        }
    };
    assert_eq!(joined, 0, "{}", reason());
    team
}

/// What a member does: passes a number to the right, sums up, and leaves.
unsafe fn member(
    attachment: *mut gpunet_host_attachment_t,
    meeting: (*mut gpunet_host_team_listener_t, *mut c_char),
    rank: u32,
) {
    let (right, left) = ((rank + 1) % MEMBERS, (rank + MEMBERS - 1) % MEMBERS);
    let (mut memory, mut token) = (null_mut(), null_mut());
    let (mut team, mut words) =
        (MaybeUninit::<TeamHandle>::uninit(), MaybeUninit::<SymmetricBytes>::uninit());
    // SAFETY: handles, and pointers to this function's own variables.
    unsafe {
        let handle = join(attachment, meeting, rank);
        assert_eq!(
            (gpunet_host_team_rank(handle), gpunet_host_team_size(handle)),
            (rank as i32, MEMBERS as i32)
        );
        assert_eq!(gpunet_host_symmetric_alloc(handle, 24, &raw mut memory), 0, "{}", reason());
        assert_eq!(gpunet_host_token(attachment, &raw mut token), 0);
        assert_eq!(gpunet_host_team_value(handle, token, team.as_mut_ptr()), 0);
        assert_eq!(gpunet_host_symmetric_value(memory, words.as_mut_ptr()), 0);
        let (team, words) = (team.assume_init(), words.assume_init());
        let word = |number: usize| words.slice(8 * number, 8);

        let own = u64::from(rank) + 1;
        assert_eq!(gpunet_host_symmetric_write(memory, 0, (&raw const own).cast(), 8), 0);
        let put = gpunet_put_signal(team, word(1), (&raw const own).cast(), 8, 0, 1, right);
        assert_eq!(put, 0, "{}", reason());
        assert_eq!(gpunet_signal_wait(team, 0, left, 1, 60_000_000_000), 1, "{}", reason());
        assert_eq!(gpunet_signal_test(team, 0, left, 2), 0);
        assert_eq!(gpunet_reduce(team, UINT64, SUM, word(2), word(0)), 0, "{}", reason());
        let mut found = [0_u64; 3];
        assert_eq!(gpunet_host_symmetric_read(memory, 0, found.as_mut_ptr().cast(), 24), 0);
        assert_eq!(found, [own, u64::from(left) + 1, u64::from((1..=MEMBERS).sum::<u32>())]);

        assert_eq!(gpunet_host_team_leave(handle), -libc::EBUSY);
        assert_eq!(gpunet_host_symmetric_free(memory), 0);
        assert_eq!(gpunet_host_team_leave(handle), 0, "{}", reason());
        assert_eq!(gpunet_barrier(team), -libc::ENETDOWN, "the team was left");
        assert_eq!(gpunet_host_token_finish(token, GPUNET_HOST_CLOSE, null_mut()), 0);
    }
}

#[test]
fn members_put_into_each_others_memory_and_leave() {
    let mut proxy = null_mut();
    // SAFETY: handles, and pointers to this function's own variables.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        let (listener, id) = meeting();
        std::thread::scope(|scope| {
            for rank in 0..MEMBERS {
                let passed = (Passed(proxy), Passed(listener), Passed(id));
                scope.spawn(move || {
                    let passed = passed;
                    let (proxy, listener, id) = (passed.0.0, passed.1.0, passed.2.0);
                    let mut attachment = null_mut();
                    assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
                    member(attachment, (listener, id), rank);
                    assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
                });
            }
        });
        assert_eq!(gpunet_host_team_listener_close(listener), -libc::EBADF, "a team was led with it");
        gpunet_host_free_string(id);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}

#[test]
fn a_program_that_nobody_launched_has_no_team() {
    let (mut proxy, mut attachment, mut team) = (null_mut(), null_mut(), null_mut());
    // SAFETY: handles, and pointers to this function's own variables.
    unsafe {
        assert_eq!(gpunet_host_embed(SETTINGS.as_ptr(), &raw mut proxy), 0, "{}", reason());
        assert_eq!(gpunet_host_attach_cpu(proxy, &raw mut attachment), 0, "{}", reason());
        if ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"]
            .iter()
            .all(|name| std::env::var_os(name).is_none())
        {
            assert_eq!(gpunet_host_team_launched(attachment, null(), &raw mut team), -libc::ENOENT);
            assert!(reason().contains("no launcher has started this program"), "{}", reason());
        }
        let no_id = c"127.0.0.1:7000".as_ptr();
        assert_eq!(gpunet_host_team_join(attachment, no_id, 0, 1, null(), &raw mut team), -libc::EINVAL);
        assert_eq!(gpunet_host_team_join(attachment, null(), 0, 1, null(), &raw mut team), -libc::EFAULT);
        assert_eq!(gpunet_host_team_barrier(team), -libc::EBADF);
        assert_eq!(reason(), "not the handle of a team: it is null");
        assert_eq!(gpunet_host_attachment_close(attachment, null_mut()), 0);
        assert_eq!(gpunet_host_proxy_close(proxy), 0);
    }
}
