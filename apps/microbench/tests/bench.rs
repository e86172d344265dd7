//! The program as a user starts it, on CPU thread blocks: its output is complete, whatever the
//! figures are.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A folder of its own, removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gpunet-bench-test-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a name").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measurements take turns: their threads spin, and several at a time on two cores stand still for
/// seconds.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpunet-bench"));
    command.args(["--device", "cpu"]).args(args).env_remove("GPUNET_DAEMON");
    command
}

fn bench(args: &[&str]) -> Output {
    let _turn = turn();
    let output = command(&["--quick"]).args(args).output().expect("it starts");
    if !output.status.success() {
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    output
}

/// Runs it with `--json`; returns the tables that it wrote.
#[track_caller]
fn tables(folder: &Folder, args: &[&str]) -> Vec<Value> {
    let json = folder.file("report.json");
    let output = bench(&[args, &["--json", &json]].concat());
    assert!(output.status.success(), "{args:?}");
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(json).expect("written")).expect("one JSON object");
    assert!(report["command"].as_str().expect("a command").contains(args[0]));
    assert!(report["machine"]["cpu"].is_string() && report["machine"]["cores"].as_u64() > Some(0));
    report["tables"].as_array().expect("tables").clone()
}

fn rows(table: &Value, role: &str) -> Vec<Value> {
    let rows = table["rows"].as_array().expect("rows");
    rows.iter().filter(|row| row["role"] == role).cloned().collect()
}

/// Checks that every figure of a table is a plausible number.
fn assert_sound(table: &Value) {
    for row in table["rows"].as_array().expect("rows") {
        if let Some(p50) = row["p50_us"].as_f64() {
            let percentile = |name: &str| row[name].as_f64().expect("a percentile");
            let (p90, p99, max) = (percentile("p90_us"), percentile("p99_us"), percentile("max_us"));
            assert!(0.0 <= p50 && p50 <= p90 && p90 <= p99 && p99 <= max, "{row}");
            assert!(row["samples"].as_u64() > Some(0), "{row}");
        } else {
            let value = row["gigabytes_per_second"].as_f64().or(row["value"].as_f64());
            assert!(value.is_some_and(|value| value >= 0.0 && value.is_finite()), "{row}");
        }
    }
}

#[test]
fn latency_has_a_floor_and_a_reference_for_each_size_and_transport() {
    let folder = Folder::new("latency");
    let tables = tables(&folder, &["latency", "--sizes", "1,4096"]);
    let transports: Vec<_> = tables.iter().map(|table| table["setting"][1][1].as_str()).collect();
    assert_eq!(transports, [Some("peer"), Some("tcp")]);
    for table in &tables {
        assert_sound(table);
        for size in [1, 4096] {
            let ours: Vec<_> = rows(table, "gpunet").into_iter().filter(|row| row["x"] == size).collect();
            assert!(!ours.is_empty(), "{size} B: {table}");
            for row in ours {
                let roles: Vec<_> =
                    row["ratios"].as_array().expect("ratios").iter().map(|r| &r["role"]).collect();
                assert!(
                    roles.contains(&&Value::from("floor")) && roles.contains(&&Value::from("peer")),
                    "{row}"
                );
            }
        }
        let setting = table["setting"].as_array().expect("a setting");
        let placement = setting.iter().find(|pair| pair[0] == "placement").expect("a placement");
        assert_eq!(placement[1], "pinned");
    }
}

#[test]
fn faults_end_well() {
    let folder = Folder::new("faults");
    let tables = tables(&folder, &["faults"]);
    assert_eq!(tables.len(), 1);
    assert_sound(&tables[0]);
    assert_eq!(rows(&tables[0], "gpunet").len(), 6, "{}", tables[0]);
}

#[test]
fn bandwidth_has_every_way_to_use_a_stream() {
    let folder = Folder::new("bandwidth");
    let tables = tables(&folder, &["bandwidth", "--pairs", "2", "--messages", "65536"]);
    let (by_count, by_size): (Vec<_>, Vec<_>) =
        tables.iter().partition(|table| table["axis"] == "rate_by_count");
    assert_eq!((by_count.len(), by_size.len()), (2, 2));
    for table in by_size {
        assert_sound(table);
        for row in rows(table, "gpunet") {
            let ratios = row["ratios"].as_array().expect("ratios");
            for role in ["floor", "peer"] {
                assert!(ratios.iter().any(|ratio| ratio["role"] == role), "{role}: {row}");
            }
        }
    }
    for table in by_count {
        assert_sound(table);
        let names: String = rows(table, "gpunet").iter().map(|row| format!("{}\n", row["name"])).collect();
        assert!(
            names.contains("half of them the other way") && names.contains("connections in turn"),
            "{names}"
        );
        assert!(!rows(table, "peer").is_empty() && !rows(table, "floor").is_empty());
    }
    assert!(rows(&tables[0], "gpunet").iter().any(|row| row["series"] == "gpunet, zero-copy"));
}

#[test]
fn a_hand_off_has_a_stamp_for_each_step_of_each_round() {
    let folder = Folder::new("handoff");
    let tables = tables(&folder, &["handoff"]);
    assert_sound(&tables[0]);
    let steps = rows(&tables[0], "gpunet");
    assert_eq!(steps.len(), 6);
    assert!(steps.iter().all(|row| row["samples"] == steps[0]["samples"]), "{steps:?}");
}

#[test]
fn ends_in_two_processes_meet_through_a_daemon() {
    let gpunetd = std::path::Path::new(env!("CARGO_BIN_EXE_gpunet-bench")).with_file_name("gpunetd");
    if !gpunetd.exists() {
        println!("NOT RUN: no {}: cargo test of the whole workspace builds it", gpunetd.display());
        return;
    }
    let folder = Folder::new("processes");
    let args = ["latency", "--processes", "--other", "cpu", "--transport", "peer", "--sizes", "64"];
    let tables = tables(&folder, &args);
    assert!(tables[0]["title"].as_str().expect("a title").contains("two processes"), "{tables:?}");
    assert!(!rows(&tables[0], "gpunet").is_empty());
}

#[test]
fn clients_are_served_by_plain_servers_and_by_gpunet_echo() {
    let echo = std::path::Path::new(env!("CARGO_BIN_EXE_gpunet-bench")).with_file_name("gpunet-echo");
    if !echo.exists() {
        println!("NOT RUN: no {}: cargo test of the whole workspace builds it", echo.display());
        return;
    }
    let folder = Folder::new("clients");
    let plot = folder.file("clients.svg");
    let tables = tables(&folder, &["clients", "connects", "--plot", &plot]);
    let svg = std::fs::read_to_string(plot).expect("a chart");
    assert!(svg.contains("clients at the same time") && svg.contains("connections a second"), "{svg}");
    assert_eq!(tables.len(), 1, "the other parts were not asked for");
    for role in ["peer", "gpunet"] {
        let rates = rows(&tables[0], role);
        assert_eq!(rates.len(), 6, "two servers, three numbers of clients: {}", tables[0]);
        assert!(rates.iter().all(|row| row["value"].as_f64().is_some_and(|rate| rate > 0.0)), "{rates:?}");
    }
}

/// Every server answers, and every answer is the right one; what is missing is said. The key-value
/// servers, which take longer, are in `.ci/run full`.
#[test]
fn servers_of_applications_stand_beside_those_that_a_user_would_take() {
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_gpunet-bench"));
    if !own.with_file_name("gpunet-hello-http").exists() {
        println!("NOT RUN: no gpunet-hello-http: cargo test of the whole workspace builds it");
        return;
    }
    let tables = tables(&Folder::new("servers"), &["servers", "http", "triton"]);
    let [http, triton] = &tables[..] else { panic!("two tables: {tables:?}") };
    tables.iter().for_each(assert_sound);
    let notes = |table: &Value| table["notes"].to_string();
    assert_eq!(rows(http, "gpunet").len(), 6, "one and two blocks: {http}");
    match rows(http, "peer").len() {
        0 => assert!(notes(http).contains("without hyper: hyper-hello is not built: cargo build"), "{http}"),
        found => {
            assert_eq!(found, 6, "one and four threads: {http}");
            assert_compared(http, &["peer"]);
        }
    }
    assert!(notes(triton).contains("without Triton: it needs a GPU"), "{triton}");
}

#[test]
fn a_rhythm_has_its_round_trips_and_its_price() {
    let folder = Folder::new("rhythm");
    let plot = folder.file("rhythm.svg");
    let tables = tables(&folder, &["rhythm", "--plot", &plot]);
    let svg = std::fs::read_to_string(plot).expect("a chart");
    assert!(["ms between two messages", "plain TCP", "block"].iter().all(|text| svg.contains(text)), "{svg}");
    let rows = rows(&tables[0], "gpunet");
    let of =
        |name: &str| rows.iter().filter(|row| row["name"].as_str().unwrap_or("").ends_with(name)).count();
    assert_eq!((of("round trip"), of("the proxy's threads")), (4, 4), "{}", tables[0]);
}

#[test]
fn bells_are_heard_from_a_block_and_from_the_host() {
    let tables = tables(&Folder::new("rings"), &["rings"]);
    let rows = rows(&tables[0], "gpunet");
    assert_eq!(rows.len(), 4, "two who ring, a rhythm and its price: {}", tables[0]);
}

#[test]
fn every_byte_is_checked_and_the_verdict_is_kept() {
    let folder = Folder::new("check");
    for (args, transports) in [
        (&["check"][..], &["peer, tcp"][..]),
        (&["check", "--transport", "tcp", "--widest", "2"], &["tcp"]),
        (&["check", "--other", "cpu"], &["peer", "tcp"]),
    ] {
        let tables = tables(&folder, args);
        assert_eq!(tables.len(), transports.len(), "{args:?}");
        for (table, transports) in tables.iter().zip(transports) {
            assert_eq!(table["what"], "check");
            assert_eq!(table["setting"][1][1], *transports, "{args:?}");
            assert_sound(table);
            assert!(rows(table, "gpunet").iter().all(|row| row["unit"] == "bytes verified"), "{table}");
            let notes = table["notes"].as_array().expect("notes");
            assert!(notes.len() == 1 && notes[0].as_str().expect("text").starts_with("all shapes right"));
        }
    }
}

/// Checks that every row of gpunet is compared with rows of these roles.
fn assert_compared(table: &Value, roles: &[&str]) {
    for row in rows(table, "gpunet") {
        let ratios = row["ratios"].as_array().expect("ratios");
        for role in roles {
            assert!(ratios.iter().any(|ratio| ratio["role"] == *role), "{role}: {row}");
        }
    }
}

#[test]
fn queues_stand_beside_streams_by_hand() {
    let folder = Folder::new("stream");
    let tables = tables(&folder, &["stream", "ping-pong", "enqueueing"]);
    let [peer, tcp, enqueueing] = &tables[..] else { panic!("three tables: {tables:?}") };
    for (table, roles) in [(peer, &["floor"][..]), (tcp, &["floor", "peer"]), (enqueueing, &["floor"])] {
        assert_sound(table);
        assert_compared(table, roles);
    }
    assert_eq!([peer, tcp, enqueueing].map(|table| rows(table, "gpunet").len()), [3, 3, 4]);
}

#[test]
fn prepared_messages_stand_beside_messages_that_a_kernel_sends() {
    let folder = Folder::new("triggers");
    let tables = tables(&folder, &["stream", "triggers", "--transport", "tcp"]);
    assert_eq!(tables.len(), 1);
    assert_sound(&tables[0]);
    assert_compared(&tables[0], &["peer"]);
    assert_eq!(["gpunet", "peer", "floor"].map(|role| rows(&tables[0], role).len()), [8, 4, 1]);
}

#[test]
fn a_queue_goes_on_or_is_said_to_stand_still_beside_others_that_wait() {
    let folder = Folder::new("waiting");
    let tables = tables(&folder, &["stream", "waiting", "--transport", "peer"]);
    assert_eq!(tables.len(), 1);
    assert_sound(&tables[0]);
    assert_eq!(["gpunet", "floor"].map(|role| rows(&tables[0], role).len()), [6, 6], "{}", tables[0]);
    let setting = tables[0]["setting"].as_array().expect("a setting");
    assert!(setting.iter().any(|pair| pair[0] == "CUDA_DEVICE_MAX_CONNECTIONS"), "{setting:?}");
}

#[test]
fn every_byte_that_queues_carry_is_checked() {
    let folder = Folder::new("messages");
    let tables = tables(&folder, &["stream", "messages", "--messages", "50"]);
    assert_eq!(tables.len(), 2, "peer and tcp");
    for table in &tables {
        assert_sound(table);
        let counts: Vec<_> = rows(table, "gpunet").iter().map(|row| row["value"].as_f64()).collect();
        assert_eq!((counts[0], counts[2], counts[3]), (Some(50.0), Some(0.0), Some(0.0)), "{table}");
    }
}

#[test]
fn large_messages_stand_beside_copies_and_plain_streams() {
    let folder = Folder::new("staged");
    let args = ["staged", "--messages", "100K,1M", "--streams", "1,3", "--ring", "64K"];
    let tables = tables(&folder, &args);
    assert_eq!(tables.len(), 4, "two ways, two numbers of streams");
    for table in &tables {
        assert_sound(table);
        assert_compared(table, &["floor", "peer"]);
        assert_eq!(rows(table, "gpunet").len(), 2, "{table}");
    }
}

#[test]
fn arrays_stand_beside_one_copy_and_plain_sockets_and_say_how_they_went() {
    let folder = Folder::new("tensors");
    let tables = tables(&folder, &["tensors", "--arrays", "10K,1M", "--streams", "2"]);
    assert_eq!(tables.len(), 1);
    assert_sound(&tables[0]);
    assert_compared(&tables[0], &["floor", "peer"]);
    let names: Vec<_> = rows(&tables[0], "gpunet").iter().map(|row| row["name"].to_string()).collect();
    assert_eq!(names.len(), 8, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.contains("four under way")).count(), 2, "{names:?}");
    assert!(
        names.iter().all(|name| ["one copy", "connection (", "connections (", "behind the header"]
            .iter()
            .any(|way| name.contains(way))),
        "{names:?}"
    );
}

#[test]
fn teams_stand_beside_bare_copies_and_plain_threads() {
    let folder = Folder::new("symmetric");
    let plot = folder.file("symmetric.svg");
    let tables = tables(&folder, &["symmetric", "--members", "2", "--plot", &plot]);
    let of = |name: &str| -> Vec<&Value> {
        let is_of = |table: &&Value| table["title"].as_str().is_some_and(|title| title.starts_with(name));
        tables.iter().filter(is_of).collect()
    };
    let parts = ["put_signal", "put, ", "barrier", "all_gather", "reduce"];
    assert_eq!(parts.map(|part| of(part).len()), [1, 2, 1, 1, 1], "{tables:?}");
    for part in parts {
        let alone = part.starts_with("put");
        for table in of(part) {
            assert_sound(table);
            assert_compared(table, if alone { &["floor"] } else { &["floor", "peer"] });
        }
    }
    // By which size the two ways of reducing change places.
    for table in of("reduce") {
        let notes = table["notes"].as_array().expect("notes");
        assert!(
            notes.iter().any(|note| note.as_str().is_some_and(|note| note.contains("faster"))),
            "{table}"
        );
    }
    let drawn = std::fs::read_to_string(plot).expect("charts");
    assert!(drawn.contains(">\nblocks\n<"), "an axis counts blocks: {drawn}");
}

#[test]
fn a_daemon_that_is_named_is_used_wherever_the_name_stands() {
    for args in [
        &["--daemon", "/nonexistent/gpunetd.sock", "latency", "--sizes", "64"][..],
        &["latency", "--sizes", "64", "--daemon", "/nonexistent/gpunetd.sock"],
        &["bandwidth", "--daemon", "/nonexistent/gpunetd.sock"],
        &["check", "--other", "cpu", "--daemon", "/nonexistent/gpunetd.sock"],
    ] {
        let output = bench(args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("--daemon: no daemon at /nonexistent/gpunetd.sock"), "{args:?}: {said}");
    }
}

#[test]
fn a_report_can_be_drawn_and_put_into_a_document_later() {
    let folder = Folder::new("render");
    let json = folder.file("report.json");
    assert!(bench(&["latency", "--transport", "peer", "--sizes", "64,1K", "--json", &json]).status.success());
    let (plot, document) = (folder.file("chart.svg"), folder.file("page.md"));
    let text = "one\n<!-- gpunet-bench: begin -->\n<!-- gpunet-bench: end -->\ntwo\n";
    std::fs::write(&document, text).expect("written");
    assert!(bench(&["render", &json, "--plot", &plot, "--tables", &document]).status.success());
    let svg = std::fs::read_to_string(plot).expect("a chart");
    assert!(svg.starts_with("<svg") && svg.contains("floor: data and flag"), "{svg}");
    let page = std::fs::read_to_string(&document).expect("a page");
    assert!(page.starts_with("one\n") && page.ends_with("two\n") && page.contains("| 1 KiB |"), "{page}");
}

#[test]
fn a_run_that_is_told_to_end_leaves_its_rows_and_nothing_else() {
    let _turn = turn();
    let folder = Folder::new("ended");
    let json = folder.file("report.json");
    let mut run = command(&["--full", "bandwidth", "--json", &json]);
    let mut run = run.stdout(Stdio::null()).spawn().expect("it starts");
    let rows = || {
        let report: Value =
            serde_json::from_str(&std::fs::read_to_string(&json).ok()?).expect("always whole");
        Some(report["tables"][0]["rows"].as_array()?.len())
    };
    let limit = Instant::now() + Duration::from_secs(60);
    while rows().is_none_or(|rows| rows == 0) {
        assert!(Instant::now() < limit, "no rows");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&run), Signal::TERM).expect("it runs");
    assert_eq!(run.wait().expect("it ends").code(), Some(143));
    assert!(rows() > Some(0));
    assert_eq!(std::fs::read_dir(&folder.0).expect("a folder").count(), 1, "nothing beside the report");
}

#[test]
fn output_that_cannot_be_written_is_a_failure_and_ends_a_run_unless_something_is_kept() {
    let folder = Folder::new("unread");
    let json = folder.file("report.json");
    let run = |args: &[&str]| {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        let output = command(&["--quick", "copy"]).args(args).stdout(full).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&[]);
    assert!(code == Some(1) && said.contains("nobody reads the output"), "{code:?}: {said}");
    let said = "gpunet-bench: cannot write to stdout: No space left on device (os error 28)\n";
    assert_eq!(run(&["--json", &json]), (Some(1), said.to_owned()));
    assert!(std::fs::read_to_string(json).expect("written").contains("aligned"));
}

#[test]
fn calls_have_a_floor_and_the_socket_beside_them() {
    let folder = Folder::new("calls");
    let tables = tables(&folder, &["calls"]);
    assert_sound(&tables[0]);
    assert_eq!(rows(&tables[0], "floor").len(), 1);
    let ours = rows(&tables[0], "gpunet");
    let rates = ours.iter().filter(|row| row["value"].as_f64() > Some(0.0)).count();
    assert_eq!((ours.len(), rates), (6, 4), "{ours:?}");
}

/// That every record was read or counted is checked by the program itself, which fails otherwise.
#[test]
fn records_are_timed_collected_and_counted_and_lines_are_read() {
    let folder = Folder::new("records");
    let tables = tables(&folder, &["records"]);
    assert_sound(&tables[0]);
    assert_eq!(rows(&tables[0], "floor").len(), 2, "the loop alone, by one warp and by all");
    let ours = rows(&tables[0], "gpunet");
    let with = |field: &str| ours.iter().filter(|row| row[field].as_f64() > Some(0.0)).count();
    assert_eq!(["value", "gigabytes_per_second", "p50_us"].map(with), [11, 2, 3], "{ours:?}");
}

/// Runs `report`; returns its exit code, what it said, and the file.
fn report(out: &str, args: &[&str]) -> (Option<i32>, String, Value) {
    let output = bench(&[&["report", "--out", out], args].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = std::fs::read_to_string(out).expect("written");
    (output.status.code(), said, serde_json::from_str(&text).expect("one JSON object"))
}

/// Returns how the measurements of a report ended, and why, by their names.
fn endings(report: &Value) -> Vec<[&str; 3]> {
    let measurements = report["measurements"].as_array().expect("measurements");
    measurements
        .iter()
        .map(|one| ["name", "outcome", "why"].map(|field| one[field].as_str().unwrap_or_default()))
        .collect()
}

#[test]
fn a_report_has_what_can_run_says_what_cannot_and_goes_on_with_its_file() {
    let folder = Folder::new("report");
    let out = folder.file("report.json");
    let (code, said, first) = report(&out, &["--only", "copy,rate-between-gpus,latency-rc"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("3 measurements, at most "), "{said}");
    assert_eq!(
        endings(&first),
        [
            ["rate-between-gpus", "missing", "it needs 2 GPUs: --device is cpu"],
            ["copy", "done", ""],
            ["latency-rc", "missing", "it needs an RDMA device: --address IP"],
        ]
    );
    let tables = first["tables"].as_array().expect("tables");
    assert!(!tables.is_empty() && tables.iter().all(|table| table["measurement"] == "copy"), "{tables:?}");
    tables.iter().for_each(assert_sound);
    assert!(first["build"]["program"].is_string() && first["machine"]["cores"].as_u64() > Some(0));

    let (code, said, second) = report(&out, &["--only", "copy", "--only", "latency-rc"]);
    assert!(code == Some(0) && said.contains("copy: is in the file"), "{said}");
    assert_eq!((&first["tables"], &first["started"]), (&second["tables"], &second["started"]));
    assert_eq!(second["measurements"].as_array().expect("measurements").len(), 3, "others stay");

    let (code, said, third) = report(&out, &["--only", "copy", "--times", "2"]);
    assert!(code == Some(0) && said.contains("copy: done"), "{said}");
    let rows = rows(&third["tables"][0], "gpunet");
    assert!(!rows.is_empty() && rows.iter().all(|row| row["spread"].is_array()), "{rows:?}");
    assert_eq!(std::fs::read_dir(&folder.0).expect("a folder").count(), 1, "nothing beside the report");

    // A file that is no report, or one of another machine, stays as it is.
    let text = std::fs::read_to_string(&out).expect("readable");
    let cores = format!("\"cores\": {}", third["machine"]["cores"]);
    for (text, says) in [
        (text[..text.len() / 2].to_owned(), "it is cut off"),
        (text.replacen(&cores, "\"cores\": 100000", 1), "figures of another machine"),
        (text.replacen("\"format\": 1", "\"format\": 9", 1), "it has format 9"),
    ] {
        std::fs::write(&out, &text).expect("written");
        let output = bench(&["report", "--out", &out, "--only", "latency-rc"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(says), "{says}: {said}");
        assert_eq!(std::fs::read_to_string(&out).expect("there"), text);
    }
}

/// Returns the processes that a process has started.
fn children(of: Pid) -> Vec<Pid> {
    let all = std::fs::read_dir("/proc").expect("mounted").filter_map(|entry| entry.ok());
    let stats = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    let parents = stats.filter_map(|stat| {
        let process = stat.split_whitespace().next()?.parse().ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        Some((Pid::from_raw(process)?, Pid::from_raw(parent)?))
    });
    parents.filter(|(_, parent)| *parent == of).map(|(process, _)| process).collect()
}

#[test]
fn a_measurement_that_is_killed_or_late_takes_no_other_along() {
    let _turn = turn();
    let folder = Folder::new("killed");
    let out = folder.file("report.json");
    let mut run = command(&["--quick", "report", "--only", "scale,copy", "--out", &out]);
    let mut run = run.stderr(Stdio::null()).spawn().expect("it starts");
    let limit = Instant::now() + Duration::from_secs(60);
    let child = loop {
        if let Some(child) = children(Pid::from_child(&run)).first() {
            break *child;
        }
        assert!(Instant::now() < limit, "it starts nothing");
        std::thread::sleep(Duration::from_millis(5));
    };
    kill_process(child, Signal::KILL).expect("it runs");
    assert_eq!(run.wait().expect("it ends").code(), Some(1), "a measurement failed");
    let text = std::fs::read_to_string(&out).expect("written");
    let killed: Value = serde_json::from_str(&text).expect("one JSON object");
    let [scale, copy] = endings(&killed).try_into().expect("two measurements");
    assert!(scale[1] == "failed" && scale[2].contains("signal 9"), "{scale:?}");
    assert_eq!(copy, ["copy", "done", ""]);

    // This one takes minutes, and is ended with everything that it has started.
    let late = ["--full", "report", "--only", "bandwidth", "--within", "1", "--out", &out];
    let output = command(&late).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "scale is still one that failed");
    let text = std::fs::read_to_string(&out).expect("written");
    let late: Value = serde_json::from_str(&text).expect("one JSON object");
    let [bandwidth, scale, copy] = endings(&late).try_into().expect("three measurements");
    assert!(
        bandwidth[1] == "missing" && bandwidth[2].contains("no time left of --within 1"),
        "{bandwidth:?}"
    );
    assert_eq!((copy[1], scale[1]), ("done", "failed"), "they stay");
}

#[test]
fn tables_of_documents_are_made_from_reports_and_checked() {
    let folder = Folder::new("documents");
    let page = folder.file("page.md");
    let from = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/report.json");
    let docs = folder.0.to_str().expect("a name");
    let render = |args: &[&str]| {
        let output = bench(&[&["render", from, "--docs", docs], args].concat());
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let marked = |mark: &str| format!("one\n<!-- gpunet-bench: {mark} -->\nold\n");
    let end = "<!-- gpunet-bench: end -->\ntwo\n";
    std::fs::write(&page, marked("begin report machine") + end).expect("written");
    let differs = (Some(1), format!("{page}:2: report machine differs\n1 of 1 tables differ\n"));
    assert_eq!(render(&["--check"]), differs);
    assert_eq!(render(&[]), (Some(0), format!("{page}:2: report machine is new\n")));
    let text = std::fs::read_to_string(&page).expect("there");
    assert!(text.starts_with("one\n") && text.contains("\n32 x Intel") && text.ends_with(end), "{text}");
    assert_eq!(render(&["--check"]), (Some(0), "0 of 1 tables differ\n".to_owned()));
    for (text, says) in [
        (marked("begin report tables") + end, "line 2: report tables: no view tables"),
        (marked("begin h100 all") + end, "line 2: no report h100 among report"),
        (marked("begin h200 all"), "line 2: no <!-- gpunet-bench: end --> after it"),
        (marked("start") + end, "line 2: unknown mark"),
        ("no marks\n".to_owned(), "no page in it has a mark"),
    ] {
        std::fs::write(&page, &text).expect("written");
        let (code, said) = render(&[]);
        assert!(code == Some(1) && said.contains(says), "{says}: {said}");
        assert_eq!(std::fs::read_to_string(&page).expect("there"), text, "nothing is written");
    }
}

#[test]
fn what_changed_since_the_report_before_is_a_table() {
    let folder = Folder::new("changes");
    let text = include_str!("data/report.json");
    let (page, report) = (folder.file("page.md"), folder.file("h200.json"));
    let marked = "<!-- gpunet-bench: begin h200 changes -->\n<!-- gpunet-bench: end -->\n";
    std::fs::write(&page, marked).expect("written");
    std::fs::write(&report, text.replacen("\"p50_us\": 16.591", "\"p50_us\": 33.182", 1)).expect("written");
    let render = || bench(&["render", &report, "--docs", folder.0.to_str().expect("a name")]);
    let output = render();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("previous/ beside its file has none"), "{said}");
    std::fs::create_dir(folder.0.join("previous")).expect("made");
    std::fs::write(folder.0.join("previous/h200.json"), text).expect("written");
    assert!(render().status.success());
    let made = std::fs::read_to_string(&page).expect("there");
    assert!(made.contains(": the whole round trip | 16.6 | 33.2 us | **2.00 times slower** |\n"), "{made}");
    std::fs::write(folder.0.join("previous/h200.json"), &text[..100]).expect("written");
    let output = render();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("previous/h200.json: it is cut off"), "{said}");
}

#[test]
fn a_slow_machine_has_more_time() {
    let limit = |args: &[&str]| {
        let output = bench(&[&["report", "--list", "--only", "latency-rc"], args].concat());
        String::from_utf8_lossy(&output.stdout).split_whitespace().nth(1).map(str::to_owned)
    };
    assert_eq!(limit(&[]).as_deref(), Some("300"));
    assert_eq!(limit(&["--slowdown", "12"]).as_deref(), Some("3600"));
}

#[test]
fn two_reports_are_compared() {
    let folder = Folder::new("compare");
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/report.json");
    let new = folder.file("new.json");
    let text = std::fs::read_to_string(old).expect("there");
    std::fs::write(&new, text.replacen("\"p50_us\": 16.591", "\"p50_us\": 33.182", 1)).expect("written");
    let output = bench(&["compare", old, &new]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(said.starts_with("worse   2.00x  handoff: "), "{said}");
    assert!(said.contains("the whole round trip: 16.6 (14.9 to 18.3) -> 33.2 (29.9 to 36.5) us\n"), "{said}");
    assert!(said.contains("1 rows changed by more than their spread") && said.contains("10 %"), "{said}");
}

#[test]
fn what_cannot_be_is_refused_in_a_line() {
    for (args, says) in [
        (&["latency", "--other", "gpu"][..], "cpu, cuda or cuda:N"),
        (&["latency", "--sizes", "0"], "expected 1 to 64M"),
        (&["bandwidth", "--pairs", "1000"], "1000 is not in"),
        (&["bandwidth", "--threads", "0"], "0 is not in"),
        (&["latency", "--threads", "99999"], "99999 is not in"),
        (&["attach"], "needs a daemon"),
        (&["stream", "--transport", "rc"], "peer or tcp"),
        (&["stream", "--messages", "0"], "0 is not in"),
        (&["staged", "--ring", "3M"], "a power of two"),
        (&["staged", "--streams", "17"], "17 is not in 1..=16"),
        (&["check", "--widest", "0"], "0 is not in 1..=1024"),
        (&["check", "--widest", "1025"], "1025 is not in 1..=1024"),
        (&["render", "/nonexistent.json", "--plot", "/dev/null"], "/nonexistent.json"),
        (&["render", "/nonexistent.json"], "--plot or --tables"),
        (&["render"], "<FILE.json>"),
        (&["render", "/nonexistent.json", "--check", "--plot", "/dev/null"], "--docs"),
        (&["compare", "/nonexistent.json", "/nonexistent.json"], "/nonexistent.json"),
        (&["report"], "--out"),
        (&["report", "--out", "/nonexistent/report.json"], "--out /nonexistent/report.json: No such file"),
        (&["report", "--out", "/dev/null", "--only", "everything"], "everything"),
        (&["report", "--out", "/dev/null", "--json", "/dev/null"], "report writes --out"),
        (&["copy", "--json", "/nonexistent/report.json"], "--json /nonexistent/report.json: No such file"),
        (&["copy", "--plot", "/"], "--plot /: is a directory"),
        (&["copy", "--tables", "/dev/null"], "--tables /dev/null: it is no regular file"),
    ] {
        let output = bench(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}
