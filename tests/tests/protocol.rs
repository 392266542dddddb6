//! Raw bytes, well formed and not: the server must answer the same bytes as redis-server and
//! close the connection exactly when it does.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tests::client::{self, Client};
use tests::judge::Judge;
use tests::reply::quote;
use tests::server::Server;

/// Cases that run at the same time: each mostly waits for silence.
const THREADS: usize = 8;
/// Silence after which the oracle has said everything.
const ORACLE_IDLE: Duration = Duration::from_millis(200);
/// How long the subject may take to say what the oracle said.
const SUBJECT_MAX: Duration = Duration::from_secs(10);
/// Silence after which the subject has nothing to add.
const SUBJECT_IDLE: Duration = Duration::from_millis(30);

/// Requests that are sent in one piece.
const WHOLE: &[&[u8]] = &[
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n",
    b"*2\r\n$4\r\nECHO\r\n$4\r\na\r\nb\r\n",
    b"*0\r\n*1\r\n$4\r\nPING\r\n",
    b"*-1\r\n*1\r\n$4\r\nPING\r\n",
    b"*-5\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*1\r\n$4\r\nPINGxxPING\r\n",
    b"*abc\r\n",
    b"*\r\n",
    b"* 1\r\n$4\r\nPING\r\n",
    b"*+1\r\n$4\r\nPING\r\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"*1x\r\n",
    b"*2147483647\r\n",
    b"*2147483648\r\n",
    b"*9223372036854775808\r\n",
    b"*1\r\n$abc\r\n",
    b"*1\r\n$\r\n",
    b"*1\r\n$-1\r\n",
    b"*1\r\n$-2\r\nPING\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$9223372036854775807\r\n",
    b"*1\r\n$+4\r\nPING\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n:4\r\nPING\r\n",
    b"*1\r\n4\r\nPING\r\n",
    b"*1\r\n\r\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n\x00\r\n",
    b"*1\r\n\xff4\r\n",
    b"PING\r\n*1\r\nPING\r\nPING\r\n",
    b"PING\r\n",
    b"PING\n",
    b"\r\nPING\r\n",
    b"\n\n\nPING\n",
    b" \r\nPING\r\n",
    b"   PING\r\n",
    b"PING  hello  \r\n",
    b"ping \"hello world\"\r\n",
    b"ECHO 'single quoted'\r\n",
    b"ECHO \"\\x41\\n\\r\\t\\a\\b\\\\ \\\"\"\r\n",
    b"ECHO 'it\\'s \\n'\r\n",
    b"ECHO \"\"\r\n",
    b"ECHO ''\r\n",
    b"ECHO \"unbalanced\r\nPING\r\n",
    b"ECHO 'unbalanced\r\nPING\r\n",
    b"ECHO \"a\"b\r\n",
    b"ECHO 'a'b\r\n",
    b"ECHO a\"b c\"\r\n",
    b"ECHO a\tb\r\n",
    b"ECHO\ta\r\n",
    b"ECHO a\x00b\r\n",
    b"ECHO \xff\xfe\r\n",
    b"ECHO a\rb\r\n",
    b"\"PING\"\r\n",
    b"$4\r\nPING\r\n",
    b"+PING\r\n",
    b":1\r\n",
    b"GET / HTTP/1.1\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"Host: x\r\n",
    b"PING\r\npost / HTTP/1.1\r\n",
    b"MULTI\r\nHOST: x\r\n",
    b"nosuch\r\n",
    b"nosuch a b c\r\n",
    b"*2\r\n$6\r\nno\r\nsu\r\n$3\r\na\r\n\r\n",
    b"*2\r\n$6\r\nnosuch\r\n$6\r\na\x00b\xffcd\r\n",
    b"GET\r\n",
    b"GET a b\r\n",
    b"SET a\r\n",
    b"MULTI\r\nGET\r\nnosuch\r\nEXEC\r\n",
    b"MULTI\r\nSET a 1\r\nEXEC\r\n*x\r\n",
    b"QUIT\r\nPING\r\n",
    b"HELLO 1\r\n",
    b"HELLO 4\r\n",
    b"HELLO abc\r\n",
    b"HELLO 9223372036854775808\r\n",
    b"HELLO 3 BOGUS\r\n",
    b"HELLO 3 AUTH\r\n",
    b"HELLO 3 AUTH default\r\n",
    b"HELLO 3 AUTH nobody x\r\n",
    b"HELLO 3 SETNAME\r\n",
    b"HELLO 3 SETNAME \"a b\"\r\nGET nokey\r\n",
    b"*2\r\n$3\r\nGET\r\n$5\r\nnokey\r\n*2\r\n$4\r\nLPOP\r\n$5\r\nnokey\r\n",
    b"*3\r\n$4\r\nLPOP\r\n$5\r\nnokey\r\n$1\r\n2\r\n",
];

/// Requests that must reach the server in pieces, or are too long to write down.
fn long_or_cut() -> Vec<Vec<Vec<u8>>> {
    let pieces = |bytes: &[u8]| bytes.iter().map(|&byte| vec![byte]).collect::<Vec<_>>();
    let whole = |bytes: Vec<u8>| vec![bytes];
    let long = |count: usize| vec![b'a'; count];
    vec![
        pieces(b"*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nPING\r\n"),
        pieces(b"ECHO \"a b\"\r\n"),
        vec![b"*1\r\n$4\r\nPI".to_vec(), b"NG\r".to_vec(), b"\n*1\r\n$4\r\nPING\r\n".to_vec()],
        whole(long(70_000)),
        whole([b"ECHO ".to_vec(), long(60_000), b"\r\n".to_vec()].concat()),
        whole([b"ECHO ".to_vec(), long(100_000), b"\r\n".to_vec()].concat()),
        whole([b"*".to_vec(), vec![b'1'; 70_000]].concat()),
        whole([b"*1\r\n$".to_vec(), vec![b'1'; 70_000]].concat()),
        whole([b"*1\r\n".to_vec(), long(70_000)].concat()),
        whole([b"nosuch ".to_vec(), long(300), b" b\r\n".to_vec()].concat()),
        whole([long(300), b" b\r\n".to_vec()].concat()),
        whole([b"nosuch".to_vec(), b" abc".repeat(100), b"\r\n".to_vec()].concat()),
        whole(b"PING\r\n".repeat(1_000)),
        whole([b"PING\r\n".repeat(3), b"*1\r\n$x\r\n".to_vec(), b"PING\r\n".to_vec()].concat()),
    ]
}

#[test]
fn the_same_bytes_and_the_same_end() {
    let (subject, oracle) = (Server::subject(&[]), Server::oracle(&[]));
    let mut cases: Vec<Vec<Vec<u8>>> = WHOLE.iter().map(|bytes| vec![bytes.to_vec()]).collect();
    cases.extend(long_or_cut());
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut failures = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            failures.extend(compare(&subject, &oracle, case));
        }
        failures
    };
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|one| one.join().expect("a case does not panic")).collect()
    });
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

fn compare(subject: &Server, oracle: &Server, pieces: &[Vec<u8>]) -> Option<String> {
    let theirs = send(oracle, pieces).read_until_idle(ORACLE_IDLE).expect("the oracle answers");
    let difference = match read_as_much(&mut send(subject, pieces), &theirs) {
        Ok(ours) if ours == theirs => return None,
        Ok(ours) => tell(&ours),
        Err(error) => error.to_string(),
    };
    let request = pieces.concat();
    let shown = quote(&request[..request.len().min(100)]);
    Some(format!("> {shown}\n  subject {difference}\n  oracle  {}", tell(&theirs)))
}

/// Sends the pieces apart. A server that closes meanwhile is no error: its replies tell.
fn send(server: &Server, pieces: &[Vec<u8>]) -> Client {
    let mut client = server.connect();
    for piece in pieces {
        if client.send(piece).is_err() {
            break;
        }
        if pieces.len() > 1 {
            thread::sleep(Duration::from_millis(2));
        }
    }
    client
}

/// Reads until the subject has said as much as the oracle and closed if it did, and nothing more.
fn read_as_much(client: &mut Client, theirs: &(Vec<u8>, bool)) -> io::Result<(Vec<u8>, bool)> {
    let start = Instant::now();
    let (mut bytes, mut closed) = (Vec::new(), false);
    loop {
        let (more, ended) = client.read_until_idle(SUBJECT_IDLE)?;
        let silent = more.is_empty();
        bytes.extend(more);
        closed |= ended;
        let complete = bytes.len() >= theirs.0.len() && (closed || !theirs.1) && silent;
        if closed || complete || start.elapsed() > SUBJECT_MAX {
            return Ok((bytes, closed));
        }
    }
}

fn tell((bytes, closed): &(Vec<u8>, bool)) -> String {
    let end = if *closed { "closed" } else { "open" };
    format!("{} bytes {}, {end}", bytes.len(), quote(&bytes[..bytes.len().min(300)]))
}

#[test]
fn hello_answers_the_same_fields() {
    let (subject, oracle) = (Server::subject(&[]), Server::oracle(&[]));
    let (mut ours, mut theirs) = (subject.connect(), oracle.connect());
    for command in ["HELLO", "HELLO 3", "HELLO", "HELLO 2", "HELLO 3 SETNAME name", "HELLO 2"] {
        let (our_reply, their_reply) = (ours.line(command), theirs.line(command));
        assert!(
            Judge::Hello.accepts(&our_reply, &their_reply),
            "{command}\n  subject {our_reply}\n  oracle  {their_reply}"
        );
        assert_eq!(ours.line("GET nokey"), theirs.line("GET nokey"), "after {command}");
    }
}

#[test]
fn a_pipeline_of_everything_is_answered_in_order() {
    let subject = Server::subject(&[]);
    let mut client = subject.connect();
    let mut request = Vec::new();
    for number in 0..2_000 {
        request.extend(client::encode(&["ECHO", &number.to_string()]));
        request.extend_from_slice(format!("ECHO {number}\r\n").as_bytes());
    }
    client.send(&request).expect("the server reads");
    for number in 0..2_000 {
        for _ in 0..2 {
            assert_eq!(client.read().expect("a reply").text(), number.to_string());
        }
    }
}
