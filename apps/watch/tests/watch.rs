//! The built program on the CPU device.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

const WATCH: &str = env!("CARGO_BIN_EXE_gpunet-watch");

/// The last line of a block that hangs is there while it hangs, and says where.
#[test]
fn a_stalled_block_has_said_where() {
    let args = ["work", "--device", "cpu", "--for", "3600", "--blocks", "3", "--stalls", "2"];
    let mut command = Command::new(WATCH);
    let mut child = command.args(args).stdout(Stdio::piped()).spawn().expect("the program starts");
    let lines = BufReader::new(child.stdout.as_mut().expect("its output")).lines().map(Result::unwrap);
    let stalled = lines.into_iter().find(|line| line.contains("waits for a connection")).expect("it says so");
    assert!(stalled.starts_with("WARN  block 2: after step 4, waits for a connection to port "), "{stalled}");
    assert!(child.try_wait().unwrap().is_none(), "the kernel still runs");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What the stalled block waits for, on which socket and since when, is shown while it waits.
#[test]
fn a_planted_stall_is_shown() {
    let args = ["work", "--device", "cpu", "--for", "1", "--blocks", "3", "--stalls", "2"];
    let output = Command::new(WATCH).args(args).output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let port = text.lines().find_map(|line| line.split("waits for a connection to port ").nth(1));
    let port = port.unwrap_or_else(|| panic!("it has said so: {text}"));
    let shown: Vec<_> = text.lines().filter(|line| line.contains(" has waited for ")).collect();
    let [line] = shown[..] else { panic!("one block waits: {text}") };
    let ms = line.strip_prefix("block 2 has waited for ").and_then(|line| line.split(' ').next());
    assert!(ms.and_then(|ms| ms.parse::<u64>().ok()).is_some_and(|ms| ms < 1_000_000), "{line}");
    assert!(line.ends_with(&format!(" ms: accept at 127.0.0.1:{port}")), "{line}");
}

/// The stall is a span of the trace, and the file ends as it should.
#[test]
fn a_trace_has_the_stall() {
    let file = std::env::temp_dir().join(format!("gpunet-watch-trace-{}.json", std::process::id()));
    let mut command = Command::new(WATCH);
    command.args(["work", "--device", "cpu", "--for", "1", "--blocks", "3", "--stalls", "2", "--trace"]);
    let output = command.arg(&file).output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).expect("it is there");
    let with = |phase: &str, name: &str| {
        let event = format!("{{\"ph\":\"{phase}\",\"name\":\"{name}\"");
        text.lines().filter(|line| line.starts_with(&event)).count()
    };
    for phase in ["B", "E"] {
        assert_eq!((with(phase, "waits for a connection"), with(phase, "step")), (1, 8 + 8 + 5), "{text}");
    }
    assert!(text.starts_with("[\n") && text.trim_end().ends_with(']'), "{text}");
    let nowhere = Command::new(WATCH).args(["work", "--device", "cpu", "--trace", "/nonexistent/t"]).output();
    let said = String::from_utf8(nowhere.expect("the program starts").stderr).expect("text");
    assert!(said.contains("cannot write /nonexistent/t: ") && said.contains("--trace"), "{said}");
}

/// The program itself compares what was written with what was read, collected and lost.
#[test]
fn a_flood_is_accounted_for() {
    for what in ["records", "lanes", "lines"] {
        for more in [
            &["--ring", "64"][..],
            &["--collect"],
            &["--collect", "--wait", "--ring", "64", "--threads", "4"],
        ] {
            let args = ["flood", what, "--device", "cpu", "--blocks", "2", "--count", "2000"];
            let output = Command::new(WATCH).args(args).args(more).output().expect("the program starts");
            assert!(output.status.success(), "{what} {more:?}: {output:?}");
        }
    }
}
