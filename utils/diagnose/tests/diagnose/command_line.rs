//! The command line: selected checks are what is checked.

use crate::process::{diagnose, find, object, run, text};
use std::fs::File;
use std::process::Stdio;

#[test]
fn only_selects_ids_and_groups_and_nothing_else_is_told() {
    let output = run(&["--json", "--only", "limits.files,daemon"]);
    let report = object(&output);
    let ids: Vec<&str> =
        report["checks"].as_array().expect("checks").iter().filter_map(|c| c["id"].as_str()).collect();
    assert_eq!(ids, ["limits.files", "daemon.running"]);
    assert_eq!(report["exit_code"], output.status.code().expect("a code"));
}

#[test]
fn only_runs_the_self_tests_that_were_asked_for() {
    let report = object(&run(&["--json", "--only", "selftest.peer"]));
    assert_eq!(find(&report, "selftest.peer")["subject"], "cpu");
    assert_eq!(report["works"][0]["transports"], serde_json::json!(["peer"]));
}

#[test]
fn a_name_that_is_none_is_refused_with_those_that_are() {
    let output = run(&["--only", "gpu.bar7"]);
    assert_eq!(output.status.code(), Some(64));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        error.contains("\"gpu.bar7\"") && error.contains("gpu.bar1") && error.contains("topology"),
        "{error}"
    );
}

#[test]
fn a_wrong_option_is_no_verdict_and_help_is_none_either() {
    assert_eq!(run(&["--repair"]).status.code(), Some(64));
    assert_eq!(run(&["--require", "luck"]).status.code(), Some(64));
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help).contains("Exit codes: 0"), "{}", text(&help));
}

#[test]
fn the_list_names_every_check_once() {
    let listed = text(&run(&["--list"]));
    for id in ["gpu.bar1", "rdma.mtu", "topology.acs", "selftest.order", "require.gpudirect"] {
        assert_eq!(
            listed.lines().filter(|line| line.split_whitespace().next() == Some(id)).count(),
            1,
            "{id}"
        );
    }
}

#[test]
fn output_to_a_pipe_has_no_colour_and_quiet_shows_no_ok() {
    let all = text(&run(&["--only", "machine,limits"]));
    assert!(!all.contains('\x1b'), "{all}");
    assert!(all.lines().any(|line| line.starts_with("ok ")), "{all}");
    let quiet = text(&run(&["--only", "machine,limits", "--quiet"]));
    assert!(!quiet.lines().any(|line| line.starts_with("ok ")), "{quiet}");
    assert!(quiet.trim_end().ends_with(')'), "{quiet}");
}

#[test]
fn a_report_that_cannot_be_written_is_no_good_outcome() {
    for args in
        [&["--only", "machine.kernel", "--json"][..], &["--only", "machine.kernel"], &["--list"], &["--help"]]
    {
        let full = File::create("/dev/full").expect("a device that Linux has");
        let output = diagnose(args).stdout(full).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.starts_with("gpunet-diagnose: the report cannot be written: No space left"), "{error}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_changes_no_exit_code() {
    let asked = ["--only", "machine.kernel", "--json"];
    let code = run(&asked).status.code();
    let mut child = diagnose(&asked).stdout(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), code);
}
