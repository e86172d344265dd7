use super::*;
use proptest::prelude::*;
use std::vec::Vec;

type Command = Vec<Vec<u8>>;

fn encode(command: &Command) -> Vec<u8> {
    let mut bytes = std::format!("*{}\r\n", command.len()).into_bytes();
    for argument in command {
        bytes.extend(std::format!("${}\r\n", argument.len()).into_bytes());
        bytes.extend(argument);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn arguments(request: &[u8]) -> Command {
    let mut found = Arguments::of(Bytes::from(request));
    let mut all = Vec::new();
    while let Some(argument) = found.next() {
        all.push((0..argument.len()).map(|at| argument.get(at)).collect());
    }
    all
}

/// Parses a stream that arrives in pieces of these sizes, then whole; returns the commands, or
/// those before an error and the error.
fn stream(bytes: &[u8], pieces: &[usize]) -> (Vec<Command>, Option<Invalid>) {
    let (mut found, mut start, mut end, mut progress) = (Vec::new(), 0, 0, Progress::default());
    for piece in pieces.iter().copied().chain([bytes.len()]) {
        end = (end + piece).min(bytes.len());
        loop {
            match parse(Bytes::from(&bytes[start..end]), &mut progress) {
                Parsed::Complete(len) => {
                    found.push(arguments(&bytes[start..start + len]));
                    (start, progress) = (start + len, Progress::default());
                }
                Parsed::Incomplete(total) => {
                    assert!(total > end - start, "it wants what is there");
                    break;
                }
                Parsed::Invalid(why) => return (found, Some(why)),
            }
        }
    }
    (found, None)
}

fn command() -> impl Strategy<Value = Command> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6)
}

proptest! {
    #[test]
    fn any_split_of_the_input_gives_the_same_commands(commands in prop::collection::vec(command(), 0..6), pieces in prop::collection::vec(0usize..30, 0..60)) {
        let bytes: Vec<u8> = commands.iter().flat_map(encode).collect();
        prop_assert_eq!(stream(&bytes, &pieces), (commands, None));
    }

    #[test]
    fn any_input_is_found_valid_or_invalid_whatever_its_split(bytes in prop::collection::vec(prop::sample::select(&b"*$-0123\r\n abG\"x"[..]), 0..80), pieces in prop::collection::vec(0usize..9, 0..80)) {
        prop_assert_eq!(stream(&bytes, &pieces), stream(&bytes, &[]));
    }

    #[test]
    fn inline_commands_are_words(words in prop::collection::vec("[!-&(-~][!#-&(-~]{0,7}", 1..5), spaces in " {1,3}", end in prop::sample::select(std::vec!["\n", "\r\n"])) {
        prop_assume!(!words[0].starts_with('*') && !words.iter().any(|word| word.contains(['"', '\''])));
        let line = words.join(&spaces) + end;
        let words: Command = words.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(stream(line.as_bytes(), &[3]), (std::vec![words], None));
    }
}

#[test]
fn malformed_input_is_named_as_redis_names_it() {
    for (bytes, why) in [
        (&b"*abc\r\n"[..], Invalid::MultibulkLength),
        (b"*1048577\r\n", Invalid::MultibulkLength),
        (b"*99999999999999999999\r\n", Invalid::MultibulkLength),
        (b"*1\r\nPING\r\n", Invalid::NoDollar(b'P')),
        (b"*1\r\n\r\n", Invalid::NoDollar(b'\r')),
        (b"*2\r\n$1\r\na\r\n\r\n$1\r\nb\r\n", Invalid::NoDollar(b'\r')),
        (b"*1\r\n$-1\r\n", Invalid::BulkLength),
        (b"*1\r\n$1048577\r\n", Invalid::BulkLength),
        (b"*1\r\n$x\r\n", Invalid::BulkLength),
        (b"*5\r\n$4294967296\r\n", Invalid::BulkLength),
        (b"SET \"a b c\r\n", Invalid::Quotes),
        (b"SET \"a b\"c\r\n", Invalid::Quotes),
        (b"SET 'a b\\' c\r\n", Invalid::Quotes),
        (b"SET \"a \\\" b\" c\r\n", Invalid::Escapes),
        (b"SET a\"b\" c\r\n", Invalid::Escapes),
    ] {
        assert_eq!(stream(bytes, &[]).1, Some(why), "{:?}", std::string::String::from_utf8_lossy(bytes));
    }
}

#[test]
fn lines_without_end_are_found_out() {
    for (start, why) in
        [("*1", Invalid::MultibulkLine), ("*1\r\n$1", Invalid::BulkLine), ("GET ", Invalid::InlineLine)]
    {
        let endless = [start.as_bytes(), &std::vec![b'1'; MAX_INLINE + 10]].concat();
        assert_eq!(stream(&endless, &[1000; 70]).1, Some(why), "{start}");
    }
}

#[test]
fn a_request_beyond_the_limit_is_refused_before_it_has_come() {
    let mut bytes = b"*6\r\n".to_vec();
    for _ in 0..4 {
        bytes.extend(std::format!("${MAX_BULK}\r\n").into_bytes());
        if bytes.len() > 3 << 20 {
            break;
        }
        bytes.extend(std::vec![b'x'; MAX_BULK + 2]);
    }
    assert_eq!(stream(&bytes, &[1 << 19; 8]).1, Some(Invalid::TooLong));
    let many = std::format!("*{MAX_ARGUMENTS}\r\n");
    assert_eq!(stream(many.as_bytes(), &[]).1, Some(Invalid::TooLong), "their lengths alone are too long");
}

#[test]
fn empty_requests_have_no_arguments() {
    assert_eq!(stream(b"*0\r\n*-1\r\n\r\n  \n", &[]).0, [const { Command::new() }; 4]);
}

#[test]
fn too_many_arguments_are_refused_however_they_come() {
    let bytes = b"*1048576\r\n$0\r\n\r\n\xff\xff";
    for cuts in [&[][..], &[10, 3], &[1; 20]] {
        assert_eq!(stream(bytes, cuts).1, Some(Invalid::TooLong), "{cuts:?}");
    }
}

#[test]
fn words_are_divided_as_redis_divides_them() {
    let words = |line: &[u8]| stream(line, &[]).0;
    assert_eq!(words(b"\x0cPING \x0b hello\r\n"), [[&b"PING"[..], b"hello"].map(<[u8]>::to_vec).to_vec()]);
    assert_eq!(words(b"PING\x0b\tx\x0cy\r\n"), [[&b"PING\x0b"[..], b"x\x0cy"].map(<[u8]>::to_vec).to_vec()]);
    assert_eq!(stream(b"PING\0x\r\nPING\r\n", &[]), (std::vec![], None));
    let quoted = words(b"SET \"a 'b'\" 'c \\ \"d\"'  \"\" ''\r\n\"PING\"\n");
    let set = [&b"SET"[..], b"a 'b'", b"c \\ \"d\"", b"", b""].map(<[u8]>::to_vec).to_vec();
    assert_eq!(quoted, [set, std::vec![b"PING".to_vec()]]);
}

#[test]
fn only_letters_become_lower() {
    for byte in 0..=u8::MAX {
        let eight = u64::from_le_bytes([byte; 8]);
        assert_eq!(lower(eight).to_le_bytes(), [byte.to_ascii_lowercase(); 8]);
    }
}
