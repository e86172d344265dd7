//! Children that crash, hang, or do as they should.

use super::*;
use crate::check::{Impact, Status};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(script);
    command
}

fn said(line: &ChildEvent) -> String {
    format!("echo '{}'; ", serde_json::to_string(line).expect("serialises"))
}

#[test]
fn a_test_that_crashes_or_hangs_fails_alone() {
    let done = |test: Test| said(&ChildEvent::Done(Check::ok(test.id(), "fine").on("cpu")));
    let begin = |test: Test| said(&ChildEvent::Begin(test.id().to_owned()));
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
    tests_by(script, DeviceName::Cpu, &asked, Duration::from_secs(2), |check| checks.push(check));
    let ids: Vec<&str> = checks.iter().map(|check| check.id.as_str()).collect();
    assert_eq!(ids, asked.map(Test::id));
    let status = |test: Test| checks.iter().find(|check| check.id == test.id()).expect("told");
    for fine in [Test::Words, Test::Order, Test::Peer] {
        assert_eq!(status(fine).status, Status::Ok);
    }
    assert!(status(Test::Ring).evidence.contains("signal 11"), "{checks:?}");
    assert!(status(Test::Tcp).evidence.contains("no end within 2 s"), "{checks:?}");
    assert_eq!(status(Test::Tcp).impact, Impact::Fatal);
}

#[test]
fn a_device_that_does_not_open_is_not_tried_again() {
    let mut checks = Vec::new();
    let asked = [Test::Ptx, Test::Words, Test::Tcp];
    let script =
        |_: &[Test]| Ok(shell(&(said(&ChildEvent::Begin("selftest.ptx".to_owned())) + "exec sleep 1000")));
    tests_by(script, DeviceName::Cuda(0), &asked, Duration::from_secs(1), |check| checks.push(check));
    assert_eq!(checks.len(), 3);
    assert_eq!(checks[0].status, Status::Missing);
    assert!(checks[2].evidence.starts_with("not tried"), "{checks:?}");
    assert_eq!(checks[2].status, Status::Unknown);
}

/// Nothing is known of a test that did not begin, and what is unknown is not fatal.
fn expect_unknown(asked: &[Test], command: impl Fn(&[Test]) -> Result<Command, String>, words: &str) {
    let mut checks = Vec::new();
    tests_by(command, DeviceName::Cpu, asked, Duration::from_secs(2), |check| checks.push(check));
    assert_eq!(checks.len(), asked.len());
    for check in checks {
        assert_eq!((check.status, check.impact), (Status::Unknown, Impact::Costs), "{check:?}");
        assert!(check.evidence.contains(words), "{check:?}");
        assert!(check.advice.is_some_and(|advice| advice.contains("ulimit -n")));
    }
}

#[test]
fn a_test_that_never_ran_is_unknown() {
    let asked = [Test::Tcp, Test::Peer];
    expect_unknown(&asked, |_| Err("no program".to_owned()), "no program");
    expect_unknown(&asked, |_| Ok(Command::new("/nonexistent/program")), "does not start");
    // A program whose libraries do not load.
    expect_unknown(
        &asked,
        |_| Ok(shell("exit 127")),
        "no test began: the test's process ended with code 127",
    );
}

#[test]
fn a_child_that_ends_between_two_tests_has_a_successor() {
    let script = |tests: &[Test]| {
        let id = tests[0].id().to_owned();
        Ok(shell(&(said(&ChildEvent::Begin(id.clone())) + &said(&ChildEvent::Done(Check::ok(&id, "fine"))))))
    };
    let mut checks = Vec::new();
    let asked = [Test::Words, Test::Tcp, Test::Peer];
    tests_by(script, DeviceName::Cpu, &asked, Duration::from_secs(2), |check| checks.push(check));
    assert!(checks.len() == 3 && checks.iter().all(Check::is_ok), "{checks:?}");
}

#[test]
fn libraries_that_crash_or_hang_are_a_reason() {
    let ask = |command| ask_by(command, "the driver", Duration::from_secs(2), Some).expect_err("no answer");
    let broken_off = |how: &str| NoAnswer::BrokenOff(format!("the child process that asks the driver {how}"));
    assert_eq!(ask(shell("kill -ABRT $$")), broken_off("was killed by signal 6"));
    assert_eq!(ask(shell("exec sleep 1000")), broken_off("had no answer within 2 s"));
    let why = ask(Command::new("/nonexistent/program"));
    assert!(matches!(&why, NoAnswer::NotStarted(why) if why.contains("does not start")), "{why}");
}
