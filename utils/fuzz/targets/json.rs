//! Documents: what is one here is one for serde_json, with the same strings, and nothing else is.
#![no_main]

use gpunet_http::json::{Error, Kind, Reader};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let mut json = Reader::new(data);
    let found = json.skip().and_then(|()| json.end());
    let expected = serde_json::from_slice::<Value>(data);
    match (found, &expected) {
        (Ok(()), Ok(document)) => {
            let mut json = Reader::new(data);
            compare(&mut json, document);
            json.end().expect("as before");
        }
        // What is no number of 64 bits is no document for serde_json.
        (Ok(()), Err(error)) => assert!(error.to_string().contains("out of range"), "{error}"),
        (Err(Error::Depth), _) => {}
        (Err(error), _) => assert!(expected.is_err(), "{error:?}"),
    }
});

fn compare(json: &mut Reader<'_>, document: &Value) {
    match (json.kind().expect("a value"), document) {
        (Kind::Object, Value::Object(map)) => {
            json.object().expect("an object");
            let mut names = 0;
            while let Some(name) = json.member().expect("a member") {
                let name = String::from_utf8(name.bytes().collect()).expect("UTF-8");
                assert!(map.contains_key(&name));
                // Of several members with a name serde_json keeps the last one.
                json.skip().expect("a value");
                names += 1;
            }
            assert!(names >= map.len());
        }
        (Kind::Array, Value::Array(all)) => {
            json.array().expect("an array");
            for value in all {
                assert!(json.element().expect("an element"));
                compare(json, value);
            }
            assert!(!json.element().expect("the end"));
        }
        (Kind::String, Value::String(expected)) => {
            let text = json.text().expect("a string");
            assert!(text.is(expected.as_bytes()) && text.len() == expected.len());
            let mut buffer = vec![0; expected.len()];
            assert_eq!(text.decode(&mut buffer), Some(expected.as_bytes()));
            assert!(text.plain().is_none_or(|plain| plain == *expected.as_bytes()));
        }
        (Kind::Number, Value::Number(expected)) => {
            let number = json.number().expect("a number");
            if let Some(integer) = number.integer() {
                assert_eq!(Some(integer), expected.as_i64());
            }
            let (found, expected) = (number.float(), expected.as_f64().expect("a float"));
            // Below the smallest normal number digits are lost on the way.
            let error = (found - expected).abs();
            assert!(error <= 1e-13 * expected.abs() || error < 1e-300, "{found} {expected}");
        }
        (Kind::Bool, Value::Bool(expected)) => assert_eq!(json.bool(), Ok(*expected)),
        (Kind::Null, Value::Null) => assert_eq!(json.null(), Ok(())),
        (found, expected) => panic!("{found:?} {expected}"),
    }
}
