//! Tests of the request parser: bytes in, requests out, whatever the pieces in which they arrive.

use crate::drive::{Outcome, drive, parse};
use crate::{Args, CHUNK_BYTES, INPUT_BYTES_MAX, LINE_BYTES_MAX};
use crate::{Limits, Parser, Progress, Request, Scratch, write_request};

const LIMITS: Limits = Limits { bulk_bytes_max: 2 << 20, unauthenticated: false };

/// One line per request, then the error if there is one.
fn text(outcome: &Outcome) -> String {
    let mut lines = Vec::new();
    for request in &outcome.requests {
        let word = |arg: &Vec<u8>| match arg.is_empty() {
            true => "(empty)".to_string(),
            false => arg.escape_ascii().to_string(),
        };
        let words: Vec<_> = request.iter().map(word).collect();
        lines.push(words.join("|"));
    }
    if let Some(error) = outcome.error {
        let mut reply = Vec::new();
        error.append_to(&mut reply);
        assert!(reply.starts_with(b"-ERR Protocol error: ") && reply.ends_with(b"\r\n"));
        lines.push(reply[21..].trim_ascii_end().escape_ascii().to_string());
    }
    lines.join("; ")
}

fn check_with(limits: Limits, input: &[u8], expected: &str) {
    let whole = parse(input, limits, 1000, || usize::MAX);
    assert_eq!(text(&whole), expected, "whole: {}", input.escape_ascii());
    if input.len() > 2000 {
        return;
    }
    let bytewise = parse(input, limits, 1, || 1);
    assert_eq!(bytewise, whole, "byte by byte: {}", input.escape_ascii());
    for first in 1..input.len() {
        for budget in [1, 1000] {
            let mut sizes = [first].into_iter();
            let split = parse(input, limits, budget, || sizes.next().unwrap_or(usize::MAX));
            assert_eq!(split, whole, "split at {first}: {}", input.escape_ascii());
        }
    }
}

#[track_caller]
fn check(input: &[u8], expected: &str) {
    check_with(LIMITS, input, expected);
}

#[test]
fn multibulk_requests() {
    check(b"*1\r\n$4\r\nPING\r\n", "PING");
    check(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n", "GET|k; PING");
    check(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\nhello\r\nworld\r\n", r"SET|k|hello\r\nworld");
    check(b"*1\r\n$0\r\n\r\n", "(empty)");
    check(b"*1\r\n$4\r\nPING\r", "");
    check(b"*2147483647\r\n", "");
    check(b"*1\r\n$2097152\r\n", "");
}

#[test]
fn requests_without_arguments_are_ignored() {
    check(b"*0\r\n*1\r\n$4\r\nPING\r\n", "PING");
    check(b"*-5\r\nPING\r\n", "PING");
    check(b"*-9223372036854775808\r\nPING\r\n", "PING");
    check(b"\r\n\n  \r\nPING\r\n", "PING");
}

#[test]
fn line_ends_are_skipped_unseen() {
    check(b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", "PING; PING");
    check(b"*1\rX$4\rYPINGxx", "PING");
}

#[test]
fn numbers_are_canonical() {
    for count in ["-0", "+1", "01", "", " 1", "1 ", "2147483648", "9223372036854775808", "x"] {
        check(format!("*{count}\r\n").as_bytes(), "invalid multibulk length");
    }
    for len in ["-1", "-0", "04", "", " 4", "4 ", "2097153", "99999999999999999999", "x"] {
        check(format!("*1\r\n${len}\r\n").as_bytes(), "invalid bulk length");
    }
}

#[test]
fn an_argument_begins_with_a_dollar() {
    check(b"*1\r\nPING\r\n", "expected \\'$\\', got \\'P\\'");
    check(b"*1\r\n\r\n", "expected \\'$\\', got \\' \\'");
    check(b"*1\r\n\n\r\n", "expected \\'$\\', got \\' \\'");
    check(b"*1\r\n\xff\r\n", r"expected \'$\', got \'\xff\'");
    check(b"*2\r\n$1\r\na\r\n:1\r\n", "expected \\'$\\', got \\':\\'");
}

#[test]
fn a_nul_hides_the_line_end_behind_it() {
    check(b"*1\0\r\n$4\r\nPING\r\n", "");
    check(b"*1\r\n$4\0\r\nPING\r\n", "");
    check(b"*1\r\n\0\r\n", "");
    check(b"PI\0NG\r\nPING\r\n", "");
    let filler = vec![b'\r'; LINE_BYTES_MAX];
    check(&[b"A\0".as_slice(), &filler].concat(), "too big inline request");
}

#[test]
fn inline_requests() {
    check(b"PING\r\n", "PING");
    check(b"PING\nPING\r\n", "PING; PING");
    check(b"  set k\tv \r\n", "set|k|v");
    check(b"ECHO a\rb\r\n", "ECHO|a|b");
    check(b"ECHO a\x0bb\r\n", r"ECHO|a\x0bb");
    check(b"ECHO \x0b\x0ca\r\r\n", "ECHO|a");
    check(br#"ECHO "a\x41\n\r\t\b\a\q""#, "");
    check(b"ECHO \"a\\x41\\n\\r\\t\\b\\a\\q\"\r\n", r"ECHO|aA\n\r\t\x08\x07q");
    check(b"ECHO \"\\xff\\x00\\x4\\xzz\\X41\"\r\n", r"ECHO|\xff\x00x4xzzX41");
    check(b"ECHO 'a\\'b\\n'\r\n", r"ECHO|a\'b\\n");
    check(b"ECHO \\x41 \"\" a\"\"\r\n", r"ECHO|\\x41|(empty)|a");
    check(b"ECHO ab\"c d\" \"a\"\t'b'\r\n", "ECHO|abc d|a|b");
}

#[test]
fn unbalanced_quotes() {
    for line in ["\"a\"b", "'a'b", "\"a", "'a", "\"a\\\"", "a'b'c", "\"a\\", "'a\\"] {
        check(format!("ECHO {line}\r\nPING\r\n").as_bytes(), "unbalanced quotes in request");
    }
}

#[test]
fn lines_have_a_limit() {
    let digits = |count| vec![b'1'; count];
    let big = LINE_BYTES_MAX;
    check(&digits(big), "");
    check(&digits(big + 1), "too big inline request");
    check(&[b"*".as_slice(), &digits(big - 1)].concat(), "");
    check(&[b"*".as_slice(), &digits(big)].concat(), "too big mbulk count string");
    check(&[b"*1\r\n$".as_slice(), &digits(big - 1)].concat(), "");
    check(&[b"*1\r\n$".as_slice(), &digits(big)].concat(), "too big bulk count string");
    check(&[b"*1\r\n".as_slice(), &digits(big + 1)].concat(), "too big bulk count string");
}

#[test]
fn unauthenticated_clients_send_small_requests() {
    let limits = Limits { unauthenticated: true, ..LIMITS };
    check_with(limits, b"*10\r\n", "");
    check_with(limits, b"*11\r\n", "unauthenticated multibulk length");
    check_with(limits, b"*2147483648\r\n", "invalid multibulk length");
    check_with(limits, b"*1\r\n$16384\r\n", "");
    check_with(limits, b"*1\r\n$16385\r\n", "unauthenticated bulk length");
    check_with(limits, b"*1\r\n$9999999\r\n", "invalid bulk length");
    check_with(limits, b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n", "AUTH|x");
}

/// A generator of numbers below a limit.
fn random(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    move |limit| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % limit
    }
}

fn random_request(random: &mut impl FnMut(usize) -> usize) -> Vec<Vec<u8>> {
    let count = [3, 12, 150, 1500][random(4)];
    let count = 1 + random(count);
    let arg_bytes_max = if count > 20 { 60 } else { [4, 100, 3000, 20_000, 60_000][random(5)] };
    (0..count)
        .map(|_| {
            let len = random(arg_bytes_max);
            let first = random(256);
            (0..len).map(|index| (first + index * 31 + index / CHUNK_BYTES) as u8).collect()
        })
        .collect()
}

#[test]
fn random_requests_arrive_in_random_pieces() {
    let rounds = std::env::var("EVENKEEL_TEST_ROUNDS").map_or(1, |text| text.parse().unwrap_or(1));
    for seed in 0..150 * rounds {
        let mut random = random(seed);
        let mut input = Vec::new();
        let requests: Vec<_> = (0..6).map(|_| random_request(&mut random)).collect();
        requests.iter().for_each(|request| write_request(&mut input, request));
        let budget = 1 + random(100);
        let piece_max = [40, 1500, 16384][random(3)];
        let outcome = parse(&input, LIMITS, budget, || 1 + random(piece_max));
        assert!(outcome.error.is_none(), "seed {seed}: {:?}", outcome.error);
        assert!(outcome.requests == requests, "requests differ with seed {seed}");
    }
}

#[test]
fn random_bytes_mean_the_same_whatever_the_pieces() {
    const PARTS: [&[u8]; 16] = [
        b"*1\r\n",
        b"*2\r\n",
        b"*3\r\n",
        b"$1\r\n",
        b"$3\r\n",
        b"a\r\n",
        b"abc\r\n",
        b"\r\n",
        b"\0",
        b"*0\r\n",
        b"PING\r\n",
        b"\"x y\"",
        b" ",
        b"$17000\r\n",
        b"*2000\r\n",
        b"'",
    ];
    let rounds = std::env::var("EVENKEEL_TEST_ROUNDS").map_or(1, |text| text.parse().unwrap_or(1));
    for seed in 0..3000 * rounds {
        let mut random = random(seed);
        let mut input = vec![random(256) as u8];
        for _ in 0..random(60) {
            match random(12) {
                0 => input.extend(std::iter::repeat_n(b'x', random(20_000))),
                1 => input.push(random(256) as u8),
                _ => input.extend_from_slice(PARTS[random(PARTS.len())]),
            }
        }
        let result = std::panic::catch_unwind(|| drive(&input));
        assert!(result.is_ok(), "failed with seed {seed}");
    }
}

#[test]
fn announced_lengths_reserve_nothing() {
    for input in [b"*1000000000\r\n".as_slice(), b"*2\r\n$536870912\r\nabc"] {
        let limits = Limits { bulk_bytes_max: 512 << 20, ..LIMITS };
        let mut parser = Parser::new();
        let (consumed, progress) = parser.parse(input, &mut Scratch::new(), &limits, 100);
        assert!(matches!(progress, Progress::NeedInput));
        assert_eq!(consumed, input.len());
        assert!(parser.memory_bytes() <= 3);
    }
    assert_eq!(size_of::<Parser>(), 16, "an idle connection costs little");
}

#[test]
fn many_arguments_are_not_read_again() {
    let mut input = b"*1000\r\n".to_vec();
    input.extend_from_slice(&b"$1\r\na\r\n".repeat(60));
    let mut parser = Parser::new();
    let mut scratch = Scratch::new();
    let (consumed, _) = parser.parse(&input, &mut scratch, &LIMITS, 1000);
    assert_eq!((consumed, parser.is_arriving()), (0, false), "few are cheap to read again");
    input.extend_from_slice(&b"$1\r\na\r\n".repeat(10));
    let (consumed, _) = parser.parse(&input, &mut scratch, &LIMITS, 1000);
    assert_eq!((consumed, parser.is_arriving()), (input.len(), true), "many are moved");
}

#[test]
fn half_a_million_arguments_arrive_in_bounded_steps() {
    const ARGS: usize = 500_000;
    const BUDGET: usize = 1000;
    let mut input = format!("*{ARGS}\r\n").into_bytes();
    for index in 0..ARGS {
        input.extend_from_slice(format!("$20\r\n{index:020}\r\n").as_bytes());
    }
    let mut parser = Parser::new();
    let mut scratch = Scratch::new();
    let mut position = 0;
    let mut steps = 0;
    let mut request = loop {
        let end = input.len().min(position + INPUT_BYTES_MAX);
        let window = &input[position..end];
        let (consumed, progress) = parser.parse(window, &mut scratch, &LIMITS, BUDGET);
        position += consumed;
        steps += 1;
        match progress {
            Progress::Again => assert!(consumed <= BUDGET * 27 + 16),
            Progress::NeedInput => {}
            Progress::LargeRequest(request) => break request,
            other => panic!("{other:?}"),
        }
    };
    assert!((500..=520).contains(&steps), "{steps}");
    assert_eq!(position, input.len());
    assert_eq!(request.args().len(), ARGS);
    assert_eq!(request.args().total_bytes(), ARGS * 20);
    for index in [0, 1, 4095, 4096, 77_777, ARGS - 1] {
        assert_eq!(request.args().get(index), format!("{index:020}").as_bytes());
    }
    while !request.drop_step(100) {}
}

#[test]
fn chunks_may_be_moved_out() {
    let value = vec![b'v'; 5 * CHUNK_BYTES + 7];
    let mut request = Request::from_args(Args::from_slices(&[b"SET", b"k", &value]));
    assert_eq!(request.args().get(1), b"k");
    assert!(request.chunked_mut(1).is_none());
    assert!(request.chunked_mut(9).is_none());
    let chunked = request.chunked_mut(2).expect("a long argument");
    assert_eq!(chunked.chunk_count(), 6);
    let moved: Vec<u8> = (0..6).flat_map(|index| chunked.take_chunk(index)).collect();
    assert_eq!(moved, value);
    assert!(chunked.take_chunk(0).is_empty());
}

#[test]
fn a_request_may_run_on_another_thread() {
    fn assert_send<T: Send>() {}
    assert_send::<Request>();
    assert_send::<Parser>();
}

#[test]
fn long_inline_requests() {
    let line = "word ".repeat(9000) + &"x".repeat(20_000) + "\r\n";
    let outcome = parse(line.as_bytes(), LIMITS, 1, || 5000);
    assert_eq!(outcome.requests.len(), 1);
    assert_eq!(outcome.requests[0].len(), 9001);
    assert_eq!(outcome.requests[0][9000].len(), 20_000);
}
