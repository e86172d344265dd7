//! Who may attach, and how much of it.

use crate::daemon::{GPUNETCTL, Running, TempDir, clean, gpunetd, output, text};
use crate::program::{self, PEER, nobody, small};
use crate::support::SOLO;
use crate::support::client::nobody as nobody_listens;
use gpunet_device::{Listener, SockAddr, Timeout};
use gpunet_proxy::attach;
use rustix::process::Signal;

fn start(dir: &TempDir, access: &str) -> Running {
    let file = dir.file("f.toml", access);
    Running::start(gpunetd(dir).arg("--config").arg(file))
}

/// What nobody's programs say who play `role`, under that access.
fn heard(test: &str, access: &str, role: &str, lines: usize) -> Option<Vec<String>> {
    let user = nobody(test)?;
    let dir = TempDir::new();
    let mut daemon = start(&dir, access);
    let mut program = program::start(&dir, role, Some(user), Some(nobody_listens()));
    let heard = (0..lines).map(|_| program.hear()).collect();
    drop(program);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
    Some(heard)
}

#[test]
fn who_is_not_allowed_is_told_so() {
    let Some(heard) = heard("who_is_not_allowed_is_told_so", "", "attach", 1) else { return };
    assert!(heard[0].starts_with(&format!("{} user ", libc::EACCES)), "{heard:?}");
    assert!(heard[0].contains("may not use this daemon") && heard[0].contains("allow_users"), "{heard:?}");
}

#[test]
fn so_many_attachments_and_no_more() {
    let access = "allow_users = [\"nobody\"]\n[limits]\nattachments = 3\n";
    let Some(heard) = heard("so_many_attachments_and_no_more", access, "attachments", 1) else { return };
    assert!(heard[0].starts_with(&format!("3 {} ", libc::EMFILE)), "{heard:?}");
    assert!(heard[0].contains("limit: attachments"), "{heard:?}");
}

#[test]
fn ports_outside_the_range_are_denied() {
    let access = "allow_users = [\"nobody\"]\n[user.nobody]\nports = \"25501-25509\"\n";
    let Some(heard) = heard("ports_outside_the_range_are_denied", access, "ports", 4) else { return };
    let denied = libc::EACCES.to_string();
    assert_eq!(heard[..2], [denied.as_str(), denied.as_str()], "{heard:?}");
    // Somebody else may have that port.
    assert!(["0".to_owned(), libc::EADDRINUSE.to_string()].contains(&heard[2]), "{heard:?}");
    assert_eq!(heard[3], "0");
}

#[test]
fn connects_come_at_the_rate_that_is_allowed() {
    let access = "allow_users = [\"nobody\"]\n[limits]\nconnects_per_second = 5\n";
    let test = "connects_come_at_the_rate_that_is_allowed";
    let Some(heard) = heard(test, access, "connects", 20) else { return };
    let count = |errno: i32| heard.iter().filter(|line| **line == errno.to_string()).count();
    let (asked, later) = (count(libc::ECONNREFUSED), count(libc::EAGAIN));
    assert_eq!(heard[..5], vec![libc::ECONNREFUSED.to_string(); 5], "a second's worth at once");
    // A slow machine earns one now and then.
    assert!(asked + later == 20 && later > 0, "{heard:?}");
}

#[test]
fn sockets_run_out_and_a_reload_brings_more() {
    let test = "sockets_run_out_and_a_reload_brings_more";
    let Some(user) = nobody(test) else { return };
    let dir = TempDir::new();
    let mut daemon = start(&dir, "allow_users = [\"nobody\"]\n[limits]\nsockets = 5\n");
    let mut program = program::start(&dir, "sockets", Some(user), None);
    assert_eq!(program.hear(), format!("5 {}", libc::EMFILE));
    dir.file("f.toml", "allow_users = [\"nobody\"]\n[limits]\nsockets = 9\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("reloaded: other limits from now on");
    program.go_on();
    assert_eq!(program.hear(), format!("4 {}", libc::EMFILE));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn ring_memory_is_counted_at_attach_and_at_connect() {
    let test = "ring_memory_is_counted_at_attach_and_at_connect";
    let Some(user) = nobody(test) else { return };
    let dir = TempDir::new();
    // Its region is a little more than 8 MiB, and the two parts of a first arena a little more
    // than 4.
    let access = format!("allow_users = [\"nobody\"]\n[user.nobody]\nring_memory = {}\n", 13 << 20);
    let mut daemon = start(&dir, &access);
    let proxy = attach(&dir.join("d.sock"), small()).expect("root may");
    let attachment = proxy.attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let net = token.net();
    let home = SockAddr::v4([127, 0, 0, 1], 0);
    let listener = Listener::bind_with(&SOLO, net, home, PEER, 8).expect("a port");
    let mut program = program::start(&dir, "memory", Some(user), Some(listener.local_addr()));
    let refused = program.hear();
    assert!(refused.starts_with(&format!("{} ", libc::ENOBUFS)), "{refused}");
    assert!(refused.contains("limit: ring_memory"), "{refused}");
    let first = listener.accept_timeout(&SOLO, Timeout::secs(10)).expect("the first fits");
    assert_eq!(program.hear(), "0");
    // The second needs a larger arena than its user may have.
    assert!(listener.accept_timeout(&SOLO, Timeout::secs(1)).is_err());
    assert_eq!(program.hear(), libc::ENOBUFS.to_string());
    first.close(&SOLO).expect("open");
    drop(program);
    listener.close(&SOLO).expect("open");
    drop((token, attachment));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn users_see_their_own_sockets_and_root_sees_all() {
    let Some(user) = nobody("users_see_their_own_sockets_and_root_sees_all") else { return };
    let dir = TempDir::new();
    let _daemon = start(&dir, "allow_users = [\"nobody\"]\n");
    let proxy = attach(&dir.join("d.sock"), small()).expect("root may");
    let attachment = proxy.attach_cpu().expect("attached");
    let token = attachment.token().expect("a number");
    let home = SockAddr::v4([127, 0, 0, 1], 0);
    let _listener = Listener::bind_with(&SOLO, token.net(), home, PEER, 8).expect("a port");
    let mut program = program::start(&dir, "listen", Some(user), None);
    assert_eq!(program.hear(), "1 1 0", "one client, one socket, nobody else's");
    let ss = |uid: Option<(u32, u32)>| {
        use std::os::unix::process::CommandExt;
        let copy = dir.join("ctl");
        if !copy.exists() {
            crate::support::copy_program(GPUNETCTL.as_ref(), &copy);
        }
        let mut command = clean(copy.to_str().expect("text"));
        command.arg("--path").arg(dir.join("d.sock")).arg("ss").current_dir("/");
        if let Some((uid, gid)) = uid {
            command.uid(uid).gid(gid);
        }
        text(&output(&mut command).stdout)
    };
    let (own, all) = (ss(Some(user)), ss(None));
    let listening = |table: &str| table.lines().filter(|line| line.starts_with("listen")).count();
    assert_eq!((listening(&own), listening(&all)), (1, 2), "{own}\n{all}");
    assert!(own.contains(&format!("{}/", program.pid())), "{own}");
    assert!(!own.contains(&format!("{}/", std::process::id())), "{own}");
}
