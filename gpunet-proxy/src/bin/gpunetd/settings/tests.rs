use super::*;
use crate::args;
use gpunet_proxy::access::Credentials;

fn cli(args: &[&str]) -> Cli {
    let fixed = ["gpunetd", "--listen-path", "/tmp/x.sock"];
    args::parse(fixed.iter().chain(args)).unwrap()
}

/// A file of that text and the command line above it.
fn load_text(text: &str, args: &[&str]) -> Result<Loaded, SettingsError> {
    let (given, access) = parse(text, Path::new("f.toml"))?;
    let (settings, origins) = merge(&cli(args), given, Path::new("f.toml"))?;
    let loaded = Loaded { settings, access, file: Some("f.toml".into()), origins };
    loaded.check()?;
    Ok(loaded)
}

fn refusal(text: &str, args: &[&str]) -> String {
    load_text(text, args).unwrap_err().to_string()
}

fn origin<'a>(loaded: &'a Loaded, key: &str) -> &'a Origin {
    &loaded.origins[Settings::KEYS.iter().position(|known| *known == key).unwrap()]
}

#[test]
fn the_file_is_weaker_than_the_environment_and_that_weaker_than_flags() {
    let text = "threads = 2\ndrain_s = 1\nlinger_s = 3\ncpus = \"\"\nrc_peers = [\"10.0.0.1\"]";
    let mut cli = cli(&["--threads", "4", "--drain-s", "5"]);
    // The environment of this process belongs to all tests: what clap makes of it stands here.
    cli.from_environment = vec!["drain_s".to_owned()];
    let (given, _) = parse(text, Path::new("f.toml")).unwrap();
    let (settings, origins) = merge(&cli, given, Path::new("f.toml")).unwrap();
    let loaded = Loaded { settings, access: Access::default(), file: None, origins };
    assert_eq!((loaded.settings.threads, loaded.settings.drain_s, loaded.settings.linger_s), (4, 5, 3));
    assert_eq!(loaded.settings.heartbeat_ms, 2000);
    assert_eq!(loaded.settings.config().rc_peers, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(*origin(&loaded, "threads"), Origin::Flag("--threads".to_owned()));
    assert_eq!(*origin(&loaded, "drain_s"), Origin::Environment("GPUNETD_DRAIN_S"));
    assert_eq!(*origin(&loaded, "linger_s"), Origin::File("f.toml".into()));
    assert_eq!(*origin(&loaded, "heartbeat_ms"), Origin::Default);
}

#[test]
fn every_refusal_names_key_and_reason_in_one_line() {
    for (text, args, words) in [
        ("thread = 1", &[][..], &["f.toml", "\"thread\"", "threads", "allow_users", "log_format"][..]),
        ("threads = \"two\"", &[], &["f.toml: threads: ", "string"]),
        ("threads = 17", &[], &["threads = 17 (from f.toml): expected 1 to 16, or 0: automatic"]),
        ("", &["--threads", "17"], &["threads = 17 (from --threads)"]),
        ("", &["--cpus", "1000"], &["cpus = 1000 (from --cpus)", "CPUs that this process may use"]),
        ("metrics = \"0.0.0.0:9464\"", &[], &["metrics = 0.0.0.0:9464 (from f.toml)", "loopback"]),
        ("socket_mode = 666", &[], &["socket_mode"]),
        ("rc = \"maybe\"", &[], &["rc", "maybe"]),
        ("drain_s = 86400", &[], &["drain_s", "3600"]),
        ("heartbeat_ms = 1", &[], &["heartbeat_ms = 1 (from f.toml)"]),
        ("drain_s = 1\nthreads == 2", &[], &["f.toml, line 2: "]),
        ("[limits]\nsokets = 1", &[], &["f.toml: limits: ", "sokets", "ring_memory"]),
        ("allow_users = [\"nosuchuser\"]", &[], &["allow_users", "nosuchuser"]),
        ("[user.nosuchuser]\nsockets = 1", &[], &["user", "nosuchuser"]),
    ] {
        let line = refusal(text, args);
        assert!(!line.contains('\n'), "{line}");
        for word in words {
            assert!(line.contains(word), "{text} {args:?}: {line}");
        }
    }
}

#[test]
fn what_is_printed_can_be_read_and_is_the_same() {
    let text = "metrics = \"127.0.0.1:9464\"\nsocket_mode = \"0600\"\nallow_users = [\"root\"]\n[user.root]\nports = \"80\"";
    let loaded = load_text(text, &["--log", "gpunet_proxy=debug,info"]).unwrap();
    let printed = loaded.to_string();
    assert!(printed.contains("# --log\n") && printed.contains("# f.toml\n"), "{printed}");
    let again = load_text(&printed, &[]).unwrap();
    assert_eq!(again.settings, loaded.settings);
    for uid in [0, 4001] {
        let who = Credentials { pid: 1, uid, gid: 4001, groups: Vec::new() };
        assert_eq!(again.access.limits_for(&who), loaded.access.limits_for(&who));
    }
}

#[test]
fn an_automatic_number_of_threads_is_printed_beside_its_origin() {
    let printed = |text| load_text(text, &[]).unwrap().to_string();
    let here = Config::default().thread_count();
    for (text, origin) in [("", "default"), ("threads = 0", "f.toml")] {
        let comment = format!("# {origin}; automatic: {here} here\n");
        let line = format!("{:<40} {comment}", "threads = 0");
        assert!(printed(text).contains(&line), "{}", printed(text));
    }
    assert!(!printed("threads = 2").contains("automatic"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let mut cli = cli(&[]);
    cli.config = Some("/nonexistent/gpunetd.toml".into());
    let line = load(&cli).unwrap_err().to_string();
    assert!(line.starts_with("cannot read /nonexistent/gpunetd.toml: "), "{line}");
}

#[test]
fn changes_are_named() {
    let (old, new) = (load_text("", &[]).unwrap(), load_text("drain_s = 1\nthreads = 2", &[]).unwrap());
    assert_eq!(old.settings.differ(&new.settings), ["threads", "drain_s"]);
}

#[test]
fn defaults_of_settings_are_those_of_the_proxy() {
    let settings = load_text("", &[]).unwrap().settings;
    assert_eq!(format!("{:?}", settings.config()), format!("{:?}", Config::default()));
}

/// The file that is installed changes nothing, and has every key with its default.
#[test]
fn the_installed_file_has_every_default() {
    let installed = include_str!("../../../../systemd/gpunetd.toml");
    let written: String = installed
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line))
        .filter(|line| {
            line.starts_with('[') || line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '))
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let [plain, installed, written] = ["", installed, &written].map(|text| load_text(text, &[]).unwrap());
    assert_eq!((&installed.settings, &installed.access), (&plain.settings, &plain.access));
    assert_eq!(written.settings, plain.settings);
    assert_eq!(written.access.limits(), plain.access.limits());
    // The command line has the path, which differs from user to user.
    let given = written.origins.iter().filter(|origin| matches!(origin, Origin::File(_))).count();
    assert_eq!(given, Settings::KEYS.len() - 1, "{:?}", written.origins);
    let limits = toml::Table::try_from(&written.access).unwrap().remove("limits").expect("a table");
    let known = toml::Table::try_from(plain.access.limits()).unwrap();
    assert_eq!(limits.as_table().unwrap(), &known);
}
