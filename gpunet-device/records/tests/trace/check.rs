//! Reads a trace as the Trace Event Format describes it, and says what is wrong with it.
//!
//! Document: "Trace Event Format", sections "JSON Array Format", "Event Descriptions" and "Metadata
//! Events". Checked are required fields and their types, that durations of a thread begin and end
//! in pairs, and that their times do not decrease.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// What a trace has.
#[derive(Debug, Default)]
pub struct Checked {
    /// Its events, in the file's order.
    pub events: Vec<Map<String, Value>>,
    /// Names of threads.
    pub threads: HashMap<u64, String>,
}

impl Checked {
    /// Events of a phase.
    pub fn of(&self, phase: &str) -> Vec<&Map<String, Value>> {
        self.events.iter().filter(|event| event["ph"] == phase).collect()
    }

    /// Names of the events of a phase.
    pub fn names(&self, phase: &str) -> Vec<&str> {
        self.of(phase).into_iter().filter_map(|event| event["name"].as_str()).collect()
    }
}

/// Reads a whole trace.
///
/// # Panics
/// If it is none.
pub fn check(text: &str) -> Checked {
    let value: Value = serde_json::from_str(text).expect("JSON");
    let Value::Array(events) = value else { panic!("no array") };
    let mut checked = Checked::default();
    let mut open: HashMap<(u64, u64), Vec<String>> = HashMap::new();
    let mut times: HashMap<(u64, u64), f64> = HashMap::new();
    for event in events {
        let Value::Object(event) = event else { panic!("no object: {event}") };
        let number = |name: &str| {
            event.get(name).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {name}: {event:?}"))
        };
        let word = |name: &str| {
            event.get(name).and_then(Value::as_str).unwrap_or_else(|| panic!("no {name}: {event:?}"))
        };
        let args = |event: &Map<String, Value>| event.get("args").and_then(Value::as_object).cloned();
        let (phase, name, place) = (word("ph"), word("name").to_owned(), (number("pid"), number("tid")));
        if phase == "M" {
            let args = args(&event).expect("metadata has arguments");
            match name.as_str() {
                "process_name" => assert!(args["name"].is_string(), "{event:?}"),
                "thread_name" => {
                    let thread = args["name"].as_str().expect("a name").to_owned();
                    assert!(checked.threads.insert(place.1, thread).is_none(), "named twice: {event:?}");
                }
                "thread_sort_index" => assert!(args["sort_index"].is_i64(), "{event:?}"),
                _ => {}
            }
            checked.events.push(event);
            continue;
        }
        let ts = event.get("ts").and_then(Value::as_f64).unwrap_or_else(|| panic!("no time: {event:?}"));
        let before = times.insert(place, ts).unwrap_or(0.0);
        assert!(ts >= before && ts.is_finite(), "{before} and then {event:?}");
        assert!(checked.threads.contains_key(&place.1), "a thread without a name: {event:?}");
        match phase {
            "B" => open.entry(place).or_default().push(name),
            "E" => assert_eq!(open.get_mut(&place).and_then(Vec::pop), Some(name), "{event:?}"),
            "C" => {
                let args = args(&event).expect("a counter has series");
                assert!(!args.is_empty() && args.values().all(Value::is_number), "{event:?}");
            }
            "i" => assert!(matches!(word("s"), "g" | "p" | "t"), "{event:?}"),
            _ => panic!("a phase that is not used: {event:?}"),
        }
        checked.events.push(event);
    }
    let left: Vec<_> = open.into_iter().filter(|(_, names)| !names.is_empty()).collect();
    assert!(left.is_empty(), "not ended: {left:?}");
    checked
}
