//! The program itself: members as threads, and as processes that a launcher has started.

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpunet-symmetric"));
    for name in ["RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "GPUNET_TEAM", "GPUNET_DAEMON"] {
        command.env_remove(name);
    }
    command
}

#[track_caller]
fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn all_examples_are_right_with_any_number_of_members() {
    for members in [1, 2, 5] {
        let line = ["all", "--elements", "10007", "--chunk", "1000", "--blocks", "3", "--members"];
        let output = program().args(line).arg(members.to_string()).output().expect("it runs");
        let lines = lines(&output);
        assert_eq!(lines.len(), 7 * members, "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with("is right")), "{lines:?}");
    }
}

#[test]
fn processes_that_a_launcher_has_started_form_a_team() {
    // The port after this one is where they meet: find two that are free.
    let port = (0..100)
        .find_map(|_| {
            let free = TcpListener::bind("127.0.0.1:0").ok()?;
            let port = free.local_addr().ok()?.port();
            TcpListener::bind(("127.0.0.1", port.checked_add(1)?)).ok().map(|_| port)
        })
        .expect("two free ports");
    let start = |rank: u32| -> Child {
        let mut command = program();
        command
            .args(["all", "--launched", "--elements", "5000"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", "3").env("LOCAL_RANK", rank.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.spawn().expect("it starts")
    };
    // The first comes last.
    let children: Vec<_> = (0..3).rev().map(start).collect();
    for child in children {
        let lines = lines(&child.wait_with_output().expect("it ends"));
        assert_eq!(lines.len(), 7, "{lines:?}");
    }
}

#[test]
fn a_program_that_no_launcher_has_started_says_so() {
    let output = program().args(["ring", "--launched"]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("no launcher has started this program"), "{error}");
}
