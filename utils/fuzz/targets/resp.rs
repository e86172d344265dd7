//! The requests of gpunet-kv's clients: the parser finds the same whether the bytes come at once or
//! in pieces, and the arguments of a complete request are the parts of it that they should be.
#![no_main]

use gpunet_kv_kernel::resp::{Arguments, MAX_REQUEST, Parsed, Progress, parse};
use gpunet_serve::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&[first, stride], stream)) = data.split_first_chunk::<2>() else { return };
    let (mut start, mut first) = (0, usize::from(first));
    // One request after another, as a connection's turn takes them.
    while start < stream.len() {
        // A copy of its own, so that a read beyond it does not find the stream's bytes.
        let rest = stream[start..].to_vec();
        let whole = at_once(&rest);
        assert_eq!(
            in_pieces(&rest, first % 64 + 1, usize::from(stride)),
            whole,
            "pieces change what is found"
        );
        let Parsed::Complete(len) = whole else { return };
        assert!(len > 0 && len <= rest.len());
        let request = rest[..len].to_vec();
        if request[0] == b'*' {
            array(&request)
        } else {
            inline(&request)
        }
        (start, first) = (start + len, first.wrapping_mul(31).wrapping_add(len));
    }
});

fn at_once(bytes: &[u8]) -> Parsed {
    let mut progress = Progress::default();
    let found = parse(Bytes::from(bytes), &mut progress);
    if let Parsed::Incomplete(total) = found {
        assert!(total > bytes.len() && total <= MAX_REQUEST, "{total} of {}", bytes.len());
        // A second look at the same bytes finds the same.
        let before = progress;
        assert_eq!((parse(Bytes::from(bytes), &mut progress), progress), (found, before));
    }
    found
}

/// What is found when `first` bytes come at first, and then a few at a time.
fn in_pieces(bytes: &[u8], first: usize, stride: usize) -> Parsed {
    let (mut progress, mut len) = (Progress::default(), first);
    loop {
        let piece = bytes[..len.min(bytes.len())].to_vec();
        match parse(Bytes::from(&piece[..]), &mut progress) {
            Parsed::Incomplete(total) if len < bytes.len() => {
                assert!(total > piece.len());
                len += stride % 7 + 1;
            }
            found => return found,
        }
    }
}

fn bytes_of(argument: Bytes<'_>) -> Vec<u8> {
    assert_eq!(argument.get(argument.len()), 0, "what is behind an argument is not its own");
    (0..argument.len()).map(|at| argument.get(at)).collect()
}

/// The arguments of an array follow each other with their lengths, and fill the request.
fn array(request: &[u8]) {
    let mut arguments = Arguments::of(Bytes::from(request));
    let count = arguments.len();
    let mut at = request.iter().position(|&byte| byte == b'\r').expect("a complete line") + 2;
    for _ in 0..count {
        let argument = bytes_of(arguments.next().expect("as many as there are"));
        at += format!("${}\r\n", argument.len()).len();
        assert_eq!(request[at..at + argument.len()], argument);
        at += argument.len() + 2;
    }
    assert!(at == request.len() && arguments.next().is_none());
    assert!(Arguments::of(Bytes::from(request)).after(count).next().is_none());
}

/// The arguments of a line are its words.
fn inline(request: &[u8]) {
    let mut arguments = Arguments::of(Bytes::from(request));
    if request.contains(&b'"') || request.contains(&b'\'') {
        // Each lies somewhere in the line.
        for _ in 0..arguments.len() {
            let argument = bytes_of(arguments.next().expect("as many as there are"));
            assert!(argument.is_empty() || request.windows(argument.len()).any(|part| part == argument));
        }
        assert!(arguments.next().is_none());
        return;
    }
    // As in Redis: vertical tabs and form feeds before a word are skipped, and within one belong
    // to it.
    let without_tabs = |word: &[u8]| {
        let begin = word.iter().take_while(|byte| matches!(byte, b'\x0b' | b'\x0c')).count();
        word[begin..].to_vec()
    };
    let pieces = request.split(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
    let words: Vec<_> = pieces.map(without_tabs).filter(|word| !word.is_empty()).collect();
    assert_eq!(arguments.len(), words.len());
    for word in words {
        assert_eq!(bytes_of(arguments.next().expect("as many as there are")), word);
    }
    assert!(arguments.next().is_none());
}
