//! Values of a document, one after another.

use super::Error;
use super::text::{self, Number, Text};
use gpunet_serve::Bytes;

/// Arrays and objects in each other, at most.
const MAX_DEPTH: u32 = 64;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 8259")]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool,
    Null,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before a value.
    Value,
    /// Behind the opening of an object or an array.
    Begun,
    /// Behind a value.
    After,
}

/// Reads a document where it lies, as the program asks for its values.
///
/// It has a state of a few words and calls itself nowhere, whatever the document is. After an error
/// its results mean nothing.
///
/// # Cooperation
/// Every lane has a reader of its own; all come to the same.
///
/// # Examples
///
/// ```
/// use gpunet_http::json::{Error, Reader};
///
/// struct Completion { tokens: i64, temperature: f64, is_stream: bool }
///
/// fn read(body: &[u8]) -> Result<Completion, Error> {
///     let mut found = Completion { tokens: 16, temperature: 1.0, is_stream: false };
///     let mut json = Reader::new(body);
///     json.object()?;
///     while let Some(name) = json.member()? {
///         if name.is(b"max_tokens") {
///             found.tokens = json.number()?.integer().ok_or(Error::Kind)?;
///         } else if name.is(b"temperature") {
///             found.temperature = json.number()?.float();
///         } else if name.is(b"stream") {
///             found.is_stream = json.bool()?;
///         } else {
///             json.skip()?;
///         }
///     }
///     json.end()?;
///     Ok(found)
/// }
///
/// let found = read(br#"{"max_tokens": 7, "stop": ["a", {}], "temperature": 0.5, "stream":
/// true}"#).unwrap(); assert!(found.tokens == 7 && found.temperature == 0.5 && found.is_stream);
/// assert!(read(br#"{"max_tokens": 7"#).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Reader<'t> {
    bytes: Bytes<'t>,
    at: usize,
    depth: u32,
    /// A bit for each level, the innermost lowest: it is an object.
    objects: u64,
    place: Place,
}

impl<'t> Reader<'t> {
    /// A reader of this document.
    #[must_use]
    pub fn new(document: impl Into<Bytes<'t>>) -> Self {
        Self { bytes: document.into(), at: 0, depth: 0, objects: 0, place: Place::Value }
    }

    const fn bad<T>(&self) -> Result<T, Error> {
        Err(Error::Syntax(self.at))
    }

    /// The next byte that is no white space; 0 at the end.
    fn peek(&mut self) -> u8 {
        loop {
            match self.bytes.get(self.at) {
                b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
                byte => return byte,
            }
        }
    }

    /// What the next value is.
    ///
    /// # Errors
    /// There is none.
    pub fn kind(&mut self) -> Result<Kind, Error> {
        if self.place != Place::Value {
            return self.bad();
        }
        match self.peek() {
            b'{' => Ok(Kind::Object),
            b'[' => Ok(Kind::Array),
            b'"' => Ok(Kind::String),
            b'-' | b'0'..=b'9' => Ok(Kind::Number),
            b't' | b'f' => Ok(Kind::Bool),
            b'n' => Ok(Kind::Null),
            _ => self.bad(),
        }
    }

    fn expect(&mut self, kind: Kind) -> Result<(), Error> {
        if self.kind()? == kind { Ok(()) } else { Err(Error::Kind) }
    }

    /// Enters the next value, which is an object: [`Reader::member`] follows.
    ///
    /// # Errors
    /// It is none.
    pub fn object(&mut self) -> Result<(), Error> {
        self.expect(Kind::Object)?;
        self.enter(1)
    }

    /// Enters the next value, which is an array: [`Reader::element`] follows.
    ///
    /// # Errors
    /// It is none.
    pub fn array(&mut self) -> Result<(), Error> {
        self.expect(Kind::Array)?;
        self.enter(0)
    }

    fn enter(&mut self, bit: u64) -> Result<(), Error> {
        if self.depth == MAX_DEPTH {
            return Err(Error::Depth);
        }
        self.at += 1;
        (self.depth, self.objects, self.place) = (self.depth + 1, self.objects << 1 | bit, Place::Begun);
        Ok(())
    }

    /// Goes on to the next member of the object: its name is taken, and its value is the next one.
    /// `None` at the end of the object, which is taken, too.
    ///
    /// # Errors
    /// The document is wrong, or the innermost value that was entered is no object.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn member(&mut self) -> Result<Option<Text<'t>>, Error> {
        if !self.more(1, b'}')? {
            return Ok(None);
        }
        if self.peek() != b'"' {
            return self.bad();
        }
        let name = self.quoted()?;
        if self.peek() != b':' {
            return self.bad();
        }
        (self.at, self.place) = (self.at + 1, Place::Value);
        Ok(Some(name))
    }

    /// Goes on to the next element of the array, which is the next value. False at the end of the
    /// array, which is taken.
    ///
    /// # Errors
    /// The document is wrong, or the innermost value that was entered is no array.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn element(&mut self) -> Result<bool, Error> {
        let more = self.more(0, b']')?;
        if more {
            self.place = Place::Value;
        }
        Ok(more)
    }

    fn more(&mut self, bit: u64, end: u8) -> Result<bool, Error> {
        if self.depth == 0 || self.objects & 1 != bit || self.place == Place::Value {
            return Err(Error::Kind);
        }
        let byte = self.peek();
        if byte == end {
            self.at += 1;
            (self.depth, self.objects, self.place) = (self.depth - 1, self.objects >> 1, Place::After);
            return Ok(false);
        }
        if self.place == Place::After {
            if byte != b',' {
                return self.bad();
            }
            self.at += 1;
        }
        Ok(true)
    }

    /// Takes the next value, which is a string.
    ///
    /// # Errors
    /// It is none.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn text(&mut self) -> Result<Text<'t>, Error> {
        self.expect(Kind::String)?;
        self.place = Place::After;
        self.quoted()
    }

    /// What stands between quotation marks; the first one is next.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn quoted(&mut self) -> Result<Text<'t>, Error> {
        self.at += 1;
        let (start, mut has_escapes) = (self.at, false);
        loop {
            let len = match self.bytes.get(self.at) {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    text::escape(self.bytes.skip(self.at + 1)).map(|(_, len)| 1 + len)
                }
                // Also past the end.
                0..0x20 => None,
                0x20..0x80 => Some(1),
                0x80.. => text::character(self.bytes.skip(self.at)),
            };
            match len {
                Some(len) => self.at += len,
                None => return self.bad(),
            }
        }
        let raw = self.bytes.slice(start, self.at - start);
        self.at += 1;
        Ok(Text { raw, has_escapes })
    }

    /// Takes the next value, which is a number.
    ///
    /// # Errors
    /// It is none.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn number(&mut self) -> Result<Number<'t>, Error> {
        self.expect(Kind::Number)?;
        let start = self.at;
        self.at += usize::from(self.bytes.get(self.at) == b'-');
        if self.bytes.get(self.at) == b'0' {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.bytes.get(self.at) == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.bytes.get(self.at), b'+' | b'-'));
            self.digits()?;
        }
        self.place = Place::After;
        Ok(Number { raw: self.bytes.slice(start, self.at - start) })
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !self.bytes.get(self.at).is_ascii_digit() {
            return self.bad();
        }
        while self.bytes.get(self.at).is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    /// Takes the next value, which is true or false.
    ///
    /// # Errors
    /// It is neither.
    pub fn bool(&mut self) -> Result<bool, Error> {
        self.expect(Kind::Bool)?;
        let is_true = self.bytes.get(self.at) == b't';
        self.word(if is_true { b"true" } else { b"false" })?;
        Ok(is_true)
    }

    /// Takes the next value, which is null.
    ///
    /// # Errors
    /// It is not.
    pub fn null(&mut self) -> Result<(), Error> {
        self.expect(Kind::Null)?;
        self.word(b"null")
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Error> {
        if self.bytes.slice(self.at, word.len()) != word {
            return self.bad();
        }
        (self.at, self.place) = (self.at + word.len(), Place::After);
        Ok(())
    }

    /// Takes the next value, whatever it is, and checks it.
    ///
    /// # Errors
    /// It is wrong.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn skip(&mut self) -> Result<(), Error> {
        let depth = self.depth;
        loop {
            match self.kind()? {
                Kind::Object => self.object()?,
                Kind::Array => self.array()?,
                Kind::String => drop(self.text()?),
                Kind::Number => drop(self.number()?),
                Kind::Bool => drop(self.bool()?),
                Kind::Null => self.null()?,
            }
            // Ends what ends here, and goes on to the next value.
            loop {
                if self.depth == depth {
                    return Ok(());
                }
                let has_more = if self.objects & 1 != 0 { self.member()?.is_some() } else { self.element()? };
                if has_more {
                    break;
                }
            }
        }
    }

    /// Checks that nothing follows the document's value, which is taken.
    ///
    /// # Errors
    /// Something does, or the value is not at its end.
    pub fn end(&mut self) -> Result<(), Error> {
        self.peek();
        if self.depth == 0 && self.place == Place::After && self.at >= self.bytes.len() {
            Ok(())
        } else {
            self.bad()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;
    use std::string::String;
    use std::vec::Vec;

    /// The document, read by asking for each value.
    fn value(json: &mut Reader<'_>) -> Result<Value, Error> {
        Ok(match json.kind()? {
            Kind::Object => {
                let mut map = serde_json::Map::new();
                json.object()?;
                while let Some(name) = json.member()? {
                    let name: Vec<u8> = name.bytes().collect();
                    map.insert(String::from_utf8(name).unwrap(), value(json)?);
                }
                Value::Object(map)
            }
            Kind::Array => {
                let mut all = Vec::new();
                json.array()?;
                while json.element()? {
                    all.push(value(json)?);
                }
                Value::Array(all)
            }
            Kind::String => {
                let text = json.text()?;
                let mut buffer = std::vec![0; text.len()];
                let decoded = text.decode(&mut buffer).unwrap();
                assert!(text.is(decoded));
                Value::String(String::from_utf8(decoded.to_vec()).unwrap())
            }
            Kind::Number => {
                let number = json.number()?;
                match number.integer() {
                    Some(integer) => integer.into(),
                    None => number.float().into(),
                }
            }
            Kind::Bool => json.bool()?.into(),
            Kind::Null => {
                json.null()?;
                Value::Null
            }
        })
    }

    fn read(text: &[u8]) -> Result<Value, Error> {
        let mut json = Reader::new(text);
        let found = value(&mut json)?;
        json.end()?;
        Ok(found)
    }

    fn skipped(text: &[u8]) -> Result<(), Error> {
        let mut json = Reader::new(text);
        json.skip()?;
        json.end()
    }

    /// Numbers compared as floats; the last digits may differ.
    fn is_like(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => {
                let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
                a == b || (a - b).abs() <= 1e-12 * b.abs()
            }
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_like(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_like(a, b)))
            }
            _ => a == b,
        }
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f32>().prop_map(|number| Value::from(f64::from(number))),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn documents_are_read_as_serde_json_does(document in documents(), is_pretty: bool) {
            let text =
                if is_pretty { serde_json::to_vec_pretty(&document) } else { serde_json::to_vec(&document) };
            let text = text.unwrap();
            let found = read(&text).unwrap();
            prop_assert!(is_like(&found, &document), "{} {}", found, document);
            prop_assert_eq!(skipped(&text), Ok(()));
        }

        /// What is no document for one is none for the other, and nothing is read beyond the end.
        #[test]
        fn whatever_is_no_document_is_refused(
            parts in prop::collection::vec(prop::sample::select(std::vec![
                &b"{"[..], b"}", b"[", b"]", b",", b":", b"\"a\"", b"\"", b"\\", b"\\u12", b"\"\\ud83d\\ude00\"",
                b"\"\\ud83d\"", b"1", b"-", b"0", b".5", b"e9", b"E+", b"true", b"nul", b"l", b" ", b"\n", b"\x00", b"\xc3",
                b"\xa4", b"\xed\xa0\x80", b"\x7f",
            ]), 0..8),
        ) {
            let text = parts.concat();
            let found = read(&text);
            let expected = serde_json::from_slice::<Value>(&text);
            // A number that is too large is no document for serde_json.
            let is_large = expected.as_ref().is_err_and(|error| error.to_string().contains("out of range"));
            prop_assert!(found.is_ok() == expected.is_ok() || is_large, "{:?} {:?}", found, expected);
            prop_assert_eq!(skipped(&text).is_ok(), found.is_ok());
        }

        #[test]
        fn short_decimals_are_exact(digits in 0u64..1_000_000_000_000_000, exponent in -22i32..23) {
            let text = std::format!("{digits}e{exponent}");
            let expected: f64 = text.parse().unwrap();
            prop_assert_eq!(Reader::new(text.as_bytes()).number().unwrap().float(), expected);
        }
    }

    #[test]
    fn depth_has_a_limit() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let text = |depth: usize| std::format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(skipped(text(64).as_bytes()), Ok(()));
            assert_eq!(skipped(text(65).as_bytes()), Err(Error::Depth));
        }
    }

    #[test]
    fn what_is_asked_for_and_not_there_is_an_error() {
        assert_eq!(Reader::new(b"1").text().unwrap_err(), Error::Kind);
        assert_eq!(Reader::new(b"1").member().unwrap_err(), Error::Kind);
        assert_eq!(Reader::new(b"").kind(), Err(Error::Syntax(0)));
        let mut json = Reader::new(b"[1]");
        json.array().unwrap();
        assert_eq!(json.member().unwrap_err(), Error::Kind);
        assert!(json.end().is_err());
        let mut small = [0; 2];
        assert!(Reader::new(b"\"abc\"").text().unwrap().decode(&mut small).is_none());
        assert!(Reader::new(b"\"a\\u0000\"").text().unwrap().is(b"a\0"));
        assert!(!Reader::new(b"\"a\\u0000\"").text().unwrap().is(b"a"));
        for (text, expected) in [("1e400", f64::INFINITY), ("-1e-400", -0.0), ("0e999999999999", 0.0)] {
            let found = Reader::new(text.as_bytes()).number().unwrap().float();
            assert_eq!(found.to_bits(), f64::to_bits(expected), "{text}");
        }
    }
}
