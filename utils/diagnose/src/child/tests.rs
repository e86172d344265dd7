//! Children that crash, hang, or do as they should.

use super::*;
use crate::check::Status;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    command
}

fn said(line: &Line) -> String {
    format!("echo '{}'; ", serde_json::to_string(line).expect("serialises"))
}

#[test]
fn a_test_that_crashes_or_hangs_fails_alone() {
    let done = |test: Test| said(&Line::Done(Check::ok(test.id(), "fine").on("cpu")));
    let begin = |test: Test| said(&Line::Begin(test.id().to_owned()));
    let script = |tests: &[Test]| {
        let text: String = tests
            .iter()
            .map(|&test| match test {
                Test::Ring => begin(test) + "kill -SEGV $$; ",
                Test::Tcp => begin(test) + "exec sleep 1000; ",
                _ => begin(test) + &done(test),
            })
            .collect();
        Ok(shell(&text))
    };
    let asked = [Test::Words, Test::Ring, Test::Order, Test::Tcp, Test::Peer];
    let mut checks = Vec::new();
    tests_by(script, Name::Cpu, &asked, Duration::from_secs(2), |check| checks.push(check));
    let ids: Vec<&str> = checks.iter().map(|check| check.id.as_str()).collect();
    assert_eq!(ids, asked.map(Test::id));
    let status = |test: Test| checks.iter().find(|check| check.id == test.id()).expect("told");
    for fine in [Test::Words, Test::Order, Test::Peer] {
        assert_eq!(status(fine).status, Status::Ok);
    }
    assert!(status(Test::Ring).evidence.contains("signal 11"), "{checks:?}");
    assert!(status(Test::Tcp).evidence.contains("no end within 2 s"), "{checks:?}");
    assert_eq!(status(Test::Tcp).impact, crate::check::Impact::Fatal);
}

#[test]
fn a_device_that_does_not_open_is_not_tried_again() {
    let mut checks = Vec::new();
    let asked = [Test::Ptx, Test::Words, Test::Tcp];
    let script = |_: &[Test]| Ok(shell("exec sleep 1000"));
    tests_by(script, Name::Cuda(0), &asked, Duration::from_secs(1), |check| checks.push(check));
    assert_eq!(checks.len(), 3);
    assert!(checks[2].evidence.starts_with("not tried"), "{checks:?}");
}

#[test]
fn libraries_that_crash_or_hang_are_a_reason() {
    let limit = Duration::from_secs(2);
    let why = libraries_by(shell("kill -ABRT $$"), limit).expect_err("crashed");
    assert!(why.ends_with("killed by signal 6"), "{why}");
    let why = libraries_by(shell("exec sleep 1000"), limit).expect_err("hangs");
    assert_eq!(why, "the libraries gave no answer within 2 s");
    let why = libraries_by(Command::new("/nonexistent/program"), limit).expect_err("no program");
    assert!(why.contains("does not start"), "{why}");
}
