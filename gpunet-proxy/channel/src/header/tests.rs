//! Headers, against every kind of bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn dtypes() -> impl Strategy<Value = Dtype> {
    prop_oneof![
        Just(Dtype::U8),
        Just(Dtype::F32),
        Just(Dtype::BF16),
        Just(Dtype { code: 1, bits: 4, lanes: 1 }),
        Just(Dtype { code: 2, bits: 32, lanes: 4 })
    ]
}

fn descriptions() -> impl Strategy<Value = Description> {
    ("[a-z.ä]{0,20}", dtypes(), vec(0u64..50, 0..5), any::<bool>())
        .prop_map(|(name, dtype, shape, on_gpu)| Description { name, dtype, shape, on_gpu })
}

fn offers(arrays: usize) -> impl Strategy<Value = Offer> {
    let allocation = (1u64..1 << 40, 1u64..1 << 40, any::<u64>(), any::<bool>())
        .prop_map(|(base, len, id, plain)| Offered { base, len, id, handle: plain.then_some([7; 64]) });
    let gpu = (any::<u64>(), vec(allocation, 0..4))
        .prop_map(|(address, allocations)| GpuOffer { address, allocations });
    let place = prop_oneof![any::<u64>().prop_map(Place::Process), gpu.prop_map(Place::Gpu)];
    prop_oneof![Just(Offer::None(Reason::OtherMachine)), vec(place, arrays).prop_map(Offer::Places)]
}

fn headers() -> impl Strategy<Value = Header> {
    vec(descriptions(), 0..6).prop_flat_map(|arrays| {
        let count = arrays.len();
        (Just(arrays), offers(count), any::<u64>(), 1u16..=8, PIECES).prop_map(
            |(arrays, offer, number, streams, piece)| {
                let total = arrays.iter().map(Description::bytes).sum();
                Header { number, flags: CHECKED, streams, piece, total, crc: 9, arrays, offer }
            },
        )
    })
}

/// Decodes as a receiver does.
fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
    let (first, body) = bytes.split_first_chunk().ok_or(Malformed("short"))?;
    let prologue = Prologue::decode(first)?;
    if prologue.body != body.len() {
        return Err(Malformed("another length"));
    }
    Header::decode(&prologue, body, 8)
}

/// Gives bytes that were changed the checksum that they need to be looked at further.
fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= PROLOGUE {
        let crc = crc32fast::hash(&bytes[PROLOGUE..]);
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        let len = (bytes.len() - PROLOGUE) as u32;
        bytes[16..20].copy_from_slice(&len.to_le_bytes());
    }
    bytes
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(header in headers()) {
        prop_assert_eq!(decode(&header.encode().unwrap()), Ok(header));
    }

    /// Whatever bytes come, what is accepted is consistent: sizes that fit, connections that exist.
    #[test]
    fn whatever_is_accepted_can_be(
        header in headers(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = header.encode().unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(PROLOGUE.max(cut.index(2 * bytes.len())));
        for bytes in [bytes.clone(), with_crc(bytes)] {
            if let Ok(header) = decode(&bytes) {
                prop_assert_eq!(header.arrays.iter().map(Description::bytes).sum::<u64>(), header.total);
                prop_assert!(header.has(INLINE) && header.total <= SMALL || (1..=8).contains(&header.streams));
                prop_assert!(header.arrays.iter().all(|array| array.shape.len() <= MAX_DIMS));
                prop_assert_eq!(decode(&header.encode().unwrap()), Ok(header));
            }
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&with_crc(bytes)).is_err());
    }

    #[test]
    fn pieces_and_answers_come_back(number in any::<u64>(), offset in any::<u64>(), len in any::<u32>(), text in ".{0,400}") {
        let piece = PieceFrame::Piece { number, offset, len, crc: 5 };
        prop_assert_eq!(PieceFrame::decode(&piece.encode()), Ok(piece));
        prop_assert_eq!(PieceFrame::decode(&PieceFrame::Last { number }.encode()), Ok(PieceFrame::Last { number }));
        let answers = [
            Answer::Go { reason: Reason::OtherUser },
            Answer::Done { copied: true },
            Answer::Refused { errno: 12, text },
            Answer::Need { allocations: vec![1, 2, len] },
        ];
        for answer in answers {
            let bytes = answer.encode(number);
            let (first, text) = bytes.split_first_chunk().unwrap();
            let prologue = AnswerPrologue::decode(first).unwrap();
            prop_assert_eq!((prologue.number, prologue.text), (number, text.len()));
            let decoded = Answer::decode(prologue, text).unwrap();
            match (&answer, &decoded) {
                (Answer::Refused { text, .. }, Answer::Refused { text: cut, .. }) => prop_assert!(text.starts_with(cut.as_str())),
                _ => prop_assert_eq!(&answer, &decoded),
            }
        }
    }
}

#[test]
fn arrays_that_cannot_be_are_refused_before_anything_is_allocated() {
    let header = |dtype, shape: Vec<u64>| {
        let array = Description { name: String::new(), dtype, shape, on_gpu: false };
        let offer = Offer::None(Reason::OtherMachine);
        Header {
            number: 1,
            flags: 0,
            streams: 1,
            piece: 1 << 20,
            total: 0,
            crc: 0,
            arrays: vec![array],
            offer,
        }
    };
    for (dtype, shape) in [
        (Dtype::F32, vec![u64::MAX, 2]),
        (Dtype::F32, vec![1 << 62]),
        (Dtype::U8, vec![1 << 57]),
        (Dtype { code: 2, bits: 0, lanes: 1 }, vec![1]),
        (Dtype { code: 2, bits: 8, lanes: 0 }, vec![1]),
        (Dtype::U8, vec![1; MAX_DIMS + 1]),
    ] {
        assert!(decode(&header(dtype, shape.clone()).encode().unwrap()).is_err(), "{dtype} {shape:?}");
    }
    // An empty array has no bytes, whatever its other dimensions are.
    assert!(decode(&header(Dtype::F32, vec![u64::MAX, 0, u64::MAX]).encode().unwrap()).is_ok());
}

#[test]
fn a_header_of_many_arrays_that_are_not_there_takes_no_memory() {
    let mut bytes = with_crc([vec![0; PROLOGUE], vec![0; 16], vec![0xff, 0xff, 0, 0]].concat());
    bytes[..8].copy_from_slice(&[b'g', b'p', b'c', b'h', TRANSFER, 0, 1, 0]);
    assert_eq!(decode(&bytes), Err(Malformed("the header ends too early")));
}

#[test]
fn lengths_beyond_the_limits_are_refused() {
    let array = |name: String| Description { name, dtype: Dtype::U8, shape: vec![0], on_gpu: false };
    let header = |arrays| {
        let offer = Offer::None(Reason::Small);
        Header { number: 1, flags: INLINE, streams: 0, piece: 0, total: 0, crc: 0, arrays, offer }
    };
    assert!(header(vec![array("a".repeat(MAX_NAME))]).encode().is_ok());
    assert!(header(vec![array("a".repeat(MAX_NAME + 1))]).encode().is_err());
    assert!(header(vec![array(String::new()); MAX_ARRAYS + 1]).encode().is_err());
    assert!(header(vec![array("a".repeat(100)); MAX_ARRAYS]).encode().is_err(), "more than 4 MiB");
    let mut long = header(vec![]).encode().unwrap();
    long[16..20].copy_from_slice(&(MAX_BODY as u32 + 1).to_le_bytes());
    assert!(Prologue::decode(long[..PROLOGUE].try_into().unwrap()).is_err());
}
