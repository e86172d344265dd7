//! The tables of docs/design/memory-model.md, against the structures of gpunet-abi and the comments
//! of their fields.

use std::collections::BTreeMap;
use std::path::Path;

/// A structure that agents share, or whose fields are offsets of what they share: its file, its
/// name, the section that has its fields, and the fields that are constant or describe the layout.
const SHARED: [(&str, &str, &str, &[&str]); 12] = [
    ("placement/layout.rs", "SharedHeader", "Shared region", &[]),
    ("placement/layout.rs", "SharedLayout", "Shared region", &["len"]),
    ("stream/socket_line.rs", "SocketLine", "Shared region", &[]),
    ("request/control.rs", "ControlSlot", "Shared region", &[]),
    ("poll/poll_group.rs", "ListHeader", "Shared region", &[]),
    ("placement/layout.rs", "DeviceHeader", "Device region", &[]),
    ("placement/layout.rs", "DeviceLayout", "Device region", &["len", "rings"]),
    ("poll/poll_group.rs", "PollEntry", "Device region", &[]),
    ("poll/poll_group.rs", "GroupWords", "Device region", &[]),
    ("placement/arena.rs", "PartHeader", "Arenas", &["magic", "version"]),
    ("team.rs", "BlockLayout", "Teams", &["row", "len"]),
    (
        "team.rs",
        "TeamState",
        "Teams",
        &["magic", "version", "rank", "members", "signals", "is_polled", "layout", "reserved"],
    ),
];

/// How the page names those who write as an actor of the comments.
const ACTORS: [(&str, &[&str]); 5] = [
    ("device", &["device", "CPU block", "group", "lane"]),
    ("proxy", &["proxy", "data thread", "control thread"]),
    ("host", &["host"]),
    ("GPU", &["GPU"]),
    ("agent", &["agent"]),
];

fn read(path: &str) -> String {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(repository.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the public fields of a structure, each with its comment.
fn fields(file: &str, structure: &str) -> Vec<(String, String)> {
    let text = read(&format!("gpunet-core/abi/src/{file}"));
    let (_, body) = text.split_once(&format!("pub struct {structure} {{\n")).expect("the structure is there");
    let (body, _) = body.split_once("\n}").expect("it ends");
    let (mut found, mut comment) = (Vec::new(), String::new());
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            comment += text;
        } else if let Some((name, _)) = line.strip_prefix("pub ").and_then(|field| field.split_once(':')) {
            found.push((name.to_owned(), std::mem::take(&mut comment)));
        } else {
            comment.clear();
        }
    }
    assert!(!found.is_empty(), "{structure} has no fields");
    found
}

/// Returns the actor that a comment names as the writer: "Device writes", "A GPU writes", "Written
/// by the host".
fn writer(comment: &str) -> Option<&'static str> {
    let words = comment.split([' ', '.', ',', ';', '(', ')']).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_owned).collect();
    let named = words.windows(2).find(|pair| pair[1] == "writes").map(|pair| pair[0].to_lowercase());
    let by = comment.split_once("Written by").map(|(_, rest)| rest.to_lowercase());
    let by = by.map(|rest| rest.split('.').next().unwrap_or_default().to_owned());
    let named = named.or(by)?;
    ACTORS.iter().map(|(actor, _)| *actor).find(|actor| named.contains(&actor.to_lowercase()))
}

/// Returns what each section's tables say: by identifier of the first column, the writers of its
/// rows.
fn rows(page: &str) -> BTreeMap<&str, BTreeMap<&str, String>> {
    let mut sections = BTreeMap::new();
    for section in page.split("\n## ").skip(1) {
        let (name, text) = section.split_once('\n').expect("a heading is a line");
        let mut words: BTreeMap<&str, String> = BTreeMap::new();
        for row in text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| word")) {
            let mut cells = row.trim_matches('|').split(" | ");
            let (word, writer) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
            for quoted in word.split('`').skip(1).step_by(2) {
                for name in quoted.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
                    let said = words.entry(name).or_default();
                    *said = format!("{said}; {writer}");
                }
            }
        }
        sections.insert(name, words);
    }
    sections
}

#[test]
fn every_shared_field_has_a_row_with_its_writer() {
    let page = read("docs/design/memory-model.md");
    let sections = rows(&page);
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (file, structure, section, constant) in SHARED {
        let words = sections.get(section).unwrap_or_else(|| panic!("the page has no section {section:?}"));
        for (field, comment) in fields(file, structure) {
            if constant.contains(&field.as_str()) {
                continue;
            }
            let Some(said) = words.get(field.as_str()) else {
                wrong.push(format!("{section}: no row has `{field}` of {structure}"));
                continue;
            };
            if let Some(actor) = writer(&comment) {
                compared += 1;
                let names = ACTORS.iter().find(|(name, _)| *name == actor).expect("one of them").1;
                if !names.iter().any(|name| said.contains(name)) {
                    wrong.push(format!(
                        "{section}: `{field}` is written by {said}, but its comment says: {comment}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "docs/design/memory-model.md and gpunet-abi differ:\n{}\n", wrong.join("\n"));
    assert!(compared > 15, "only {compared} comments name a writer");
}

#[test]
fn writers_are_read_from_comments() {
    assert_eq!(writer(" `u64` per socket: published. Device writes, proxy scans."), Some("device"));
    assert_eq!(writer(" A [`PanicRecord`]. A GPU writes, the host reads."), Some("GPU"));
    assert_eq!(writer(" How many launches have ended. Written by the host, after `ended`."), Some("host"));
    assert_eq!(writer(" Where it lies. Written by the attachment's agent."), Some("agent"));
    assert_eq!(writer(" 1 while the thread sleeps."), None);
}
