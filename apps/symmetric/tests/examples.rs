//! The program itself: members as threads, and as processes that a launcher has started.

use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};

/// How many examples `all` runs.
const EXAMPLES: usize = 10;

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

/// torchrun's own place, at which it listens; members meet at the next port.
fn torchruns_place() -> TcpListener {
    let find = |_| {
        let own = TcpListener::bind("127.0.0.1:0").ok()?;
        let next = own.local_addr().ok()?.port().checked_add(1)?;
        TcpListener::bind(("127.0.0.1", next)).ok().map(|_| own)
    };
    (0..100).find_map(find).expect("two free ports")
}

#[test]
fn all_examples_are_right_with_any_number_of_members() {
    for members in [1, 2, 5] {
        let line = ["all", "--elements", "10007", "--chunk", "1000", "--blocks", "3", "--members"];
        let output = program().args(line).arg(members.to_string()).output().expect("it runs");
        let lines = lines(&output);
        assert_eq!(lines.len(), EXAMPLES * members, "{lines:?}");
        assert!(lines.iter().all(|line| line.ends_with("is right")), "{lines:?}");
    }
}

#[test]
fn a_single_element_is_enough() {
    let line = ["all", "--elements", "1", "--blocks", "2", "--members", "3"];
    let lines = lines(&program().args(line).output().expect("it runs"));
    assert_eq!(lines.len(), EXAMPLES * 3, "{lines:?}");
}

#[test]
fn processes_with_torchruns_variables_form_a_team() {
    // All that it sets, without PyTorch.
    let place = torchruns_place();
    let port = place.local_addr().expect("bound").port().to_string();
    let start = |rank: u32| -> Child {
        let mut command = program();
        command.args(["all", "--launched", "--elements", "5000"]);
        for name in ["RANK", "LOCAL_RANK", "ROLE_RANK"] {
            command.env(name, rank.to_string());
        }
        for name in ["WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"] {
            command.env(name, "3");
        }
        command.env("GROUP_RANK", "0").env("GROUP_WORLD_SIZE", "1").env("ROLE_NAME", "default");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        command.env("TORCHELASTIC_RESTART_COUNT", "0").env("TORCHELASTIC_MAX_RESTARTS", "0");
        command.env("TORCHELASTIC_RUN_ID", "none").env("TORCHELASTIC_USE_AGENT_STORE", "True");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    // The first comes last.
    let children: Vec<_> = (0..3).rev().map(start).collect();
    for child in children {
        let lines = lines(&child.wait_with_output().expect("it ends"));
        assert_eq!(lines.len(), EXAMPLES, "{lines:?}");
    }
}

#[test]
fn mpirun_starts_a_team() {
    let mut command = Command::new("mpirun");
    // More processes than cores, and by whatever user the tests run.
    command.args(["-np", "3", "--oversubscribe", "--allow-run-as-root", "--timeout", "120"]);
    command.arg(env!("CARGO_BIN_EXE_gpunet-symmetric"));
    command.args(["all", "--launched", "--device", "cpu", "--elements", "5000"]);
    for name in ["GPUNET_TEAM", "GPUNET_DAEMON", "RANK", "SLURM_PROCID"] {
        command.env_remove(name);
    }
    let output = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // Not by `eprintln!`: the test harness keeps what a passing test prints to itself.
            let _ = writeln!(std::io::stderr(), "NOT RUN: mpirun is not installed (Debian: openmpi-bin)");
            return;
        }
        output => output.expect("it starts"),
    };
    let lines = lines(&output);
    for rank in 0..3 {
        let of_rank = format!("member {rank} of 3 ");
        let right = lines.iter().filter(|line| line.starts_with(&of_rank) && line.ends_with("is right"));
        assert_eq!(right.count(), EXAMPLES, "{lines:?}");
    }
}

#[test]
fn a_program_that_no_launcher_has_started_says_so() {
    let output = program().args(["ring", "--launched"]).output().expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("no launcher has started this program"), "{error}");
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for args in [&["--help"][..], &["hello", "--members", "1"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = program().args(args).stdout(full).stderr(Stdio::piped()).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        assert!(error.contains("cannot write to stdout: No space left"), "{args:?}: {error}");
    }
}
