//! Feeds bytes to a parser in pieces of different sizes, for tests and fuzzing.

use crate::{Args, CHUNK_BYTES, CONTIGUOUS_BYTES_MAX, Chunked, INPUT_BYTES_MAX};
use crate::{Limits, Parser, Progress, ProtocolError, Request, Scratch};

/// What a stream of bytes means: the requests in it, and the error that ended it.
#[derive(PartialEq, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) requests: Vec<Vec<Vec<u8>>>,
    pub(crate) error: Option<ProtocolError>,
}

/// Parses `input` whole and in pieces, and compares.
///
/// # Panics
/// If the requests or the error depend on how the bytes arrive, or a contract of the parser is
/// broken.
pub fn drive(input: &[u8]) {
    let Some((&seed, input)) = input.split_first() else { return };
    let limits = Limits { bulk_bytes_max: 100_000, unauthenticated: seed % 8 == 7 };
    let whole = parse(input, limits, 1_000_000, || usize::MAX);
    let mut state = u64::from(seed);
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    let budget = 1 + random() % 20;
    let pieces = parse(input, limits, budget, || match random() % 4 {
        0 => 1,
        1 => 1 + random() % 30,
        2 => 1 + random() % 1000,
        _ => 1 + random() % 20_000,
    });
    assert_eq!(whole, pieces, "the same whatever the pieces");
}

/// Parses `input`, which arrives in pieces of the lengths that `piece_bytes` gives.
pub(crate) fn parse(
    input: &[u8],
    limits: Limits,
    budget: usize,
    mut piece_bytes: impl FnMut() -> usize,
) -> Outcome {
    let mut parser = Parser::new();
    let mut scratch = Scratch::new();
    let mut outcome = Outcome::default();
    let mut rest = input;
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let (consumed, progress) = parser.parse(&buffer, &mut scratch, &limits, budget);
        match progress {
            Progress::Request => {
                let args = scratch.args(&buffer);
                outcome.requests.push(args.iter().map(<[u8]>::to_vec).collect());
                check_copy(args);
            }
            Progress::LargeRequest(request) => outcome.requests.push(take(request)),
            Progress::NeedInput => {
                assert!(
                    consumed > 0 || buffer.len() < INPUT_BYTES_MAX,
                    "a buffer that never frees"
                );
                assert!(parser.needed() <= INPUT_BYTES_MAX, "more needed than a buffer holds");
                if rest.is_empty() {
                    abandon(&mut parser);
                    return outcome;
                }
                let (now, later) = rest.split_at(rest.len().min(piece_bytes()));
                buffer.drain(..consumed);
                buffer.extend_from_slice(now);
                rest = later;
                continue;
            }
            Progress::Again => assert!(consumed > 0, "a call without progress"),
            Progress::Error(error) => {
                outcome.error = Some(error);
                abandon(&mut parser);
                return outcome;
            }
        }
        buffer.drain(..consumed);
    }
}

/// A copy has the same arguments.
fn check_copy(args: Args<'_>) {
    let copy = Request::from_args(args);
    assert_eq!(copy.args().len(), args.len());
    assert_eq!(copy.args().total_bytes(), args.total_bytes());
    for (index, arg) in args.iter().enumerate() {
        assert_eq!(copy.args().get(index), arg);
    }
}

/// Reads a large request in every way, makes it contiguous, and frees it in steps.
fn take(mut request: Request) -> Vec<Vec<u8>> {
    let args = request.args();
    let mut total = 0;
    let mut chunks = Vec::new();
    for index in 0..args.len() {
        total += args.arg_len(index);
        if let Some(chunked) = args.chunked(index) {
            assert!(chunked.len() > CONTIGUOUS_BYTES_MAX);
            assert!(only_the_last_is_short(chunked));
            assert_eq!(args.prefix(index).len(), CHUNK_BYTES);
            chunks.push((index, chunked.chunks().flatten().copied().collect::<Vec<u8>>()));
        }
    }
    assert_eq!(total, args.total_bytes());
    assert_eq!(request.has_chunked(), !chunks.is_empty());
    while !request.flatten_step(5000) {
        for (index, bytes) in &chunks {
            if let Some(chunked) = request.args().chunked(*index) {
                assert!(chunked.chunks().flatten().eq(bytes), "bytes in the midst of flattening");
            }
        }
    }
    assert!(!request.has_chunked());
    for (index, bytes) in chunks {
        assert_eq!(request.args().get(index), bytes);
        assert!(request.chunked_mut(index).is_none());
    }
    let args = request.args().iter().map(<[u8]>::to_vec).collect();
    check_owned_copy(request.args());
    while !request.drop_step(3) {}
    args
}

/// A copy of a large request has the same arguments, chunked again.
fn check_owned_copy(args: Args<'_>) {
    let mut copy = Request::from_args(args);
    assert_eq!(copy.args().total_bytes(), args.total_bytes());
    while !copy.flatten_step(1) {}
    assert!(copy.args().iter().eq(args.iter()));
}

fn abandon(parser: &mut Parser) {
    let bytes = parser.memory_bytes();
    if let Some(mut request) = parser.abandon() {
        assert!(request.args().total_bytes() <= bytes);
        while !request.drop_step(2) {}
    }
    assert!(!parser.is_arriving());
}

/// All chunks but the last are full, and the last is not empty.
fn only_the_last_is_short(chunked: &Chunked) -> bool {
    let last = chunked.chunk_count() - 1;
    chunked.chunks().enumerate().all(|(index, chunk)| match index < last {
        true => chunk.len() == CHUNK_BYTES,
        false => (1..=CHUNK_BYTES).contains(&chunk.len()),
    })
}
