//! Settings from all sources, and `--check`.

use crate::daemon::{GPUNETCTL, GPUNETD, TempDir, clean, gpunetd, output, text};
use std::process::Stdio;

#[test]
fn check_prints_what_counts_and_where_it_comes_from() {
    let dir = TempDir::new();
    let file = dir.file(
        "f.toml",
        "threads = 3\ndrain_s = 7\nheartbeat_ms = 1000\nallow_users = [\"root\"]\n[limits]\nsockets = 5\n",
    );
    let mut command = clean(GPUNETD);
    command.arg("--check").arg("--config").arg(&file).args([
        "--threads",
        "2",
        "--listen-path",
        "/tmp/x.sock",
    ]);
    command.env("GPUNETD_DRAIN_S", "8").env("GPUNETD_THREADS", "4");
    let output = output(&mut command);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let from_file = format!("# {}", file.display());
    for (setting, origin) in [
        ("threads = 2 ", "# --threads"),
        ("drain_s = 8 ", "# $GPUNETD_DRAIN_S"),
        ("heartbeat_ms = 1000 ", &from_file),
        ("linger_s = 30 ", "# default"),
        ("allow_users = [\"root\"] ", &from_file),
        ("sockets = 5 ", &from_file),
        ("attachments = 64 ", "# default"),
    ] {
        let found = printed.lines().find(|line| line.starts_with(setting));
        assert!(found.is_some_and(|line| line.ends_with(origin)), "{setting} {origin}:\n{printed}");
    }
    // What it prints is a file that says the same.
    let again = dir.file("again.toml", &printed);
    let mut command = clean(GPUNETD);
    let second = crate::daemon::output(command.arg("--check").arg("--config").arg(again));
    let values = |text: &str| {
        text.lines().map(|line| line.split(" #").next().unwrap_or("").trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&text(&second.stdout)), values(&printed), "{}", text(&second.stderr));
}

#[test]
fn bad_settings_end_it_with_one_line() {
    let dir = TempDir::new();
    for (content, words) in [
        ("thread = 1", &["there is no setting \"thread\"", "threads", "allow_groups"][..]),
        ("threads = 99", &["threads = 99", "1 to 16"]),
        ("metrics = \"192.0.2.1:1\"", &["metrics", "loopback"]),
        ("cpus = \"1000\"", &["cpus = 1000"]),
        ("allow_users = [\"nosuchuser\"]", &["nosuchuser", "getent"]),
        ("[limits]\nports = \"x\"", &["limits", "1024-65535,80"]),
        ("not toml", &["bad.toml, line 1"]),
    ] {
        let file = dir.file("bad.toml", content);
        for check in [true, false] {
            let mut command = gpunetd(&dir);
            command.arg("--config").arg(&file).args(check.then_some("--check"));
            let output = output(&mut command);
            let line = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{content}: {line}");
            assert!(line.starts_with("gpunetd: ") && line.lines().count() == 1, "{content}: {line}");
            words.iter().for_each(|word| assert!(line.contains(word), "{content}: {line}"));
        }
    }
    assert!(!dir.join("d.sock").exists());
}

#[test]
fn bad_command_lines_end_it_with_code_2() {
    let dir = TempDir::new();
    for args in [&["--frobnicate"][..], &["--threads", "two"], &["surplus"]] {
        let output = output(gpunetd(&dir).args(args));
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let output = output(gpunetd(&dir).env("GPUNETD_SOCKET_MODE", "rw"));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--socket-mode"), "{}", text(&output.stderr));
}

#[test]
fn version_and_help_are_printed() {
    for flag in ["--version", "--help"] {
        let output = output(clean(GPUNETD).arg(flag));
        assert!(
            output.status.success()
                && text(&output.stdout).contains(env!("CARGO_PKG_VERSION")) | (flag == "--help")
        );
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let dir = TempDir::new();
    let mut commands = [gpunetd(&dir), clean(GPUNETD), clean(GPUNETCTL)];
    commands[0].arg("--check");
    commands[1].arg("--help");
    commands[2].arg("--help");
    for command in &mut commands {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = command.stdout(full).stderr(Stdio::piped()).output().expect("it runs");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {error}");
        assert!(error.contains("cannot write") && error.contains("No space left"), "{command:?}: {error}");
    }
}
