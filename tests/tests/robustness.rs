//! Clients that misbehave, and the end of the server: others are served all the while, and memory
//! comes back.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tests::client::{Client, encode};
use tests::probe::Probe;
use tests::random::Random;
use tests::server::Server;
use tests::settings;

/// The tests measure how long others wait, so they do not run beside each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
/// Seconds of random bytes in the short form.
const SECONDS: u64 = 5;
/// Megabytes of requests in the short form.
const PIPELINE_MB: usize = 5;
/// Resident memory that may stay after the misbehaving clients have gone, in bytes.
const STAYS_MAX: u64 = 64 << 20;
/// How long memory may take to come back.
const RETURN_MAX: Duration = Duration::from_secs(20);
/// How long the server may take to end. The promise is one second on an idle machine.
const EXIT_MAX: Duration = Duration::from_secs(5);

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the resident memory is at most `before` and [`STAYS_MAX`].
fn assert_memory_returns(server: &Server, before: u64) {
    let start = Instant::now();
    while server.resident_bytes() > before + STAYS_MAX {
        let grown = server.resident_bytes().saturating_sub(before) >> 20;
        assert!(start.elapsed() < RETURN_MAX, "{grown} MiB more than before are still in use");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn random_bytes_on_many_connections() {
    const THREADS: u64 = 4;
    let _alone = alone();
    let mut server = Server::subject(&[]);
    let before = server.resident_bytes();
    let probe = Probe::start(&server);
    let end =
        Instant::now() + Duration::from_secs(settings::number("EVENKEEL_TEST_SECONDS", SECONDS));
    let seed = settings::seed();
    eprintln!("random bytes, EVENKEEL_SEED={seed}");
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (server, mut random) = (&server, Random::new(seed + number));
            scope.spawn(move || {
                while Instant::now() < end {
                    send_noise(&mut server.connect(), &mut random);
                }
            });
        }
    });
    assert!(server.is_running(), "random bytes ended the server");
    probe.finish("random bytes");
    assert_memory_returns(&server, before);
}

/// A few kilobytes that look like the protocol now and then; the connection is then dropped.
fn send_noise(client: &mut Client, random: &mut Random) {
    const PIECES: [&[u8]; 12] = [
        b"*3\r\n$3\r\nSET\r\n",
        b"$5\r\n",
        b"\r\n",
        b"*2\r\n",
        b"*-1\r\n",
        b"$-1\r\n",
        b"GET noise\r\n",
        b"MULTI\r\n",
        b"EXEC\r\n",
        b"*1000000\r\n",
        b"$100000000\r\n",
        b"\"\\x",
    ];
    for _ in 0..random.below(40) {
        let piece = if random.one_in(3) {
            let length = random.below(200) as usize;
            random.bytes(length)
        } else {
            random.pick(&PIECES).to_vec()
        };
        if client.send(&piece).is_err() {
            break;
        }
    }
    if random.one_in(2) {
        client.read_until_idle(Duration::from_millis(1)).ok();
    }
}

#[test]
fn clients_vanish_in_the_middle() {
    const CLIENTS: usize = 200;
    let _alone = alone();
    let mut server = Server::subject(&[]);
    let mut client = server.connect();
    fill_list(&mut client, 50_000);
    let before = server.resident_bytes();
    let probe = Probe::start(&server);
    let vanishing: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.connect();
            let bytes: &[u8] = match number % 5 {
                0 => b"*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$1000000\r\nonly the beginning",
                1 => b"LRANGE list 0 -1\r\n",
                2 => b"WATCH list\r\nMULTI\r\nSET half 1\r\n",
                3 => b"*100000\r\n$4\r\nMGET\r\n$4\r\nlist\r\n",
                _ => b"SUNIONSTORE half set set\r\nLRANGE list 0 -1\r\nLRA",
            };
            client.send(bytes).expect("the server reads");
            client
        })
        .collect();
    thread::sleep(Duration::from_millis(100));
    for (number, client) in vanishing.iter().enumerate() {
        // Half of them say goodbye to one direction first; all are dropped below.
        if number % 2 == 0 {
            client.stream().shutdown(Shutdown::Read).ok();
        }
    }
    drop(vanishing);
    assert!(server.is_running(), "vanishing clients ended the server");
    probe.finish("200 clients vanishing");
    assert_memory_returns(&server, before);
    assert_eq!(client.line("LLEN list").integer(), Some(50_000));
    assert_eq!(client.line("STRLEN half").integer(), Some(0), "half a command was executed");
}

#[test]
fn a_long_pipeline_is_served_before_its_replies_are_read() {
    let _alone = alone();
    let mut server = Server::subject(&[]);
    let mut client = server.connect();
    let request = encode(&["GET", "value"]);
    let value = vec![b'v'; request.len() * 8];
    client.call(&[&b"SET"[..], b"value", &value]);
    let before = server.resident_bytes();
    let megabytes: usize = settings::number("EVENKEEL_PIPELINE_MB", PIPELINE_MB);
    let count = megabytes * 1_000_000 / request.len();
    let probe = Probe::start(&server);
    client.send(&request.repeat(count)).expect("the server reads on while replies queue");
    for number in 0..count {
        let reply = client.read().unwrap_or_else(|error| panic!("reply {number}: {error}"));
        assert_eq!(reply.bytes(), Some(value.as_slice()), "reply {number} of {count}");
    }
    probe.finish("a long pipeline");
    drop(client);
    assert!(server.is_running());
    assert_memory_returns(&server, before);
}

#[test]
fn a_client_that_stops_reading_costs_no_more_than_a_buffer() {
    let _alone = alone();
    let server = Server::subject(&[]);
    let mut client = server.connect();
    fill_list(&mut client, 200_000);
    let before = server.resident_bytes();
    let mut slow = server.connect();
    slow.send(b"LRANGE list 0 -1\r\n").expect("the server reads");
    let mut first = [0; 16];
    slow.stream().read_exact(&mut first).expect("the reply begins");
    assert!(first.starts_with(b"*200000\r\n"), "the reply begins with the count");
    let probe = Probe::start(&server);
    thread::sleep(Duration::from_millis(300));
    assert!(server.resident_bytes() < before + STAYS_MAX, "the whole reply is in memory");
    client.line("DEL list");
    probe.finish("a stopped reader");
    let mut rest = vec![0; 1 << 20];
    assert!(slow.stream().read(&mut rest).is_ok_and(|count| count > 0), "the reply goes on");
}

#[test]
fn sigterm_ends_the_server_whatever_it_does() {
    let _alone = alone();
    let mut server = Server::subject(&[]);
    let mut client = server.connect();
    fill_list(&mut client, 200_000);
    for batch in 0..100 {
        let members: Vec<String> =
            (0..1_000).map(|one| format!("{}", batch * 1_000 + one)).collect();
        let mut arguments = vec!["SADD", "set"];
        arguments.extend(members.iter().map(String::as_str));
        client.call(&arguments);
    }
    let mut reader = server.connect();
    reader.send(b"LRANGE list 0 -1\r\n").expect("the server reads");
    let mut storer = server.connect();
    storer.send(&b"SUNIONSTORE other set set\r\n".repeat(20)).expect("the server reads");
    let transaction = server.connect();
    transaction.stream().write_all(b"MULTI\r\nSET a 1\r\n").expect("the server reads");
    let Some((status, took)) = server.terminate(EXIT_MAX) else {
        panic!("the server still runs {EXIT_MAX:?} after SIGTERM");
    };
    eprintln!("SIGTERM to exit: {took:?}, {status}");
    assert!(status.success(), "the server ended with {status}");
}

/// A list `list` of elements of about 100 bytes.
fn fill_list(client: &mut Client, elements: usize) {
    const BATCH: usize = 1_000;
    let element = "e".repeat(100);
    for _ in 0..elements / BATCH {
        let mut arguments = vec!["RPUSH", "list"];
        arguments.extend(std::iter::repeat_n(element.as_str(), BATCH));
        assert!(client.call(&arguments).integer().is_some(), "RPUSH answers the length");
    }
}
