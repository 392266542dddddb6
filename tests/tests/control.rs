//! CLIENT KILL, PAUSE and ID, and CONFIG: what one client does to another or to the server.

use std::time::{Duration, Instant};

use tests::client::Client;
use tests::server::Server;

/// How long a killed client may stay connected.
const KILLED_MAX: Duration = Duration::from_secs(5);

fn id(client: &mut Client) -> i64 {
    client.line("CLIENT ID").integer().expect("CLIENT ID answers a number")
}

/// Waits until the server has closed the connection.
fn assert_closed(client: &mut Client, what: &str) {
    let start = Instant::now();
    loop {
        match client.read() {
            Ok(_) => {}
            Err(error) if tests::client::is_timeout(&error) => panic!("{what} was not closed"),
            Err(_) => break,
        }
    }
    assert!(start.elapsed() < KILLED_MAX, "{what} was closed after {:?}", start.elapsed());
}

#[test]
fn ids_are_unique_and_grow() {
    let server = Server::subject(&[]);
    let (mut one, mut other) = (server.connect(), server.connect());
    assert!(id(&mut one) < id(&mut other));
}

#[test]
fn kill_ends_clients_in_every_state() {
    let server = Server::subject(&[]);
    let mut control = server.connect();
    for batch in 0..100 {
        let mut command = "RPUSH list".to_owned();
        (0..1_000).for_each(|one| command.push_str(&format!(" element-of-the-list-{batch}-{one}")));
        control.line(&command);
    }
    let states = [
        ("an idle client", ""),
        ("a client in a transaction", "WATCH list\r\nMULTI\r\nSET a 1\r\n"),
        ("a client in the middle of a command", "*3\r\n$3\r\nSET\r\n$1\r\n"),
        ("a client that does not read", "LRANGE list 0 -1\r\nLRANGE list 0 -1\r\n"),
    ];
    for (what, request) in states {
        let mut client = server.connect();
        let number = id(&mut client);
        client.send(request.as_bytes()).expect("the server reads");
        std::thread::sleep(Duration::from_millis(20));
        let killed = control.line(&format!("CLIENT KILL ID {number}"));
        assert_eq!(killed.integer(), Some(1), "{what}");
        assert_closed(&mut client, what);
        assert_eq!(control.line(&format!("CLIENT KILL ID {number}")).integer(), Some(0), "{what}");
    }
    assert_eq!(control.line("GET a").to_string(), "$-1", "a killed transaction was executed");
}

/// More clients than one step looks at, on several workers.
#[test]
fn kill_ends_many_clients() {
    const CLIENTS: usize = 500;
    let server = Server::subject_with_own(&["--workers", "2"]);
    let mut control = server.connect();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| server.connect()).collect();
    // The last one is served, so all are.
    clients.iter_mut().for_each(|client| assert!(client.line("PING").is_status("PONG")));
    let last = id(&mut clients[CLIENTS - 1]);
    let killed = control.line(&format!("CLIENT KILL ID {last} TYPE normal"));
    assert_eq!(killed.integer(), Some(1));
    assert_eq!(control.line("CLIENT KILL TYPE normal MAXAGE 1000").integer(), Some(0));
    assert!(control.line("CLIENT KILL 127.0.0.1:1").is_error());
    // One that has just come is killed with the others if it is known already.
    let new = server.connect();
    let killed = control.line("CLIENT KILL TYPE normal").integer().expect("a number");
    assert!([CLIENTS as i64 - 1, CLIENTS as i64].contains(&killed), "{killed}");
    if killed == CLIENTS as i64 {
        clients.push(new);
    }
    clients.iter_mut().for_each(|client| assert_closed(client, "a killed client"));
    assert!(control.line("CLIENT KILL TYPE normal SKIPME no").integer() >= Some(1));
    assert_closed(&mut control, "the killer");
}

#[test]
fn pause_holds_back_writes_or_everything() {
    const PAUSE: Duration = Duration::from_millis(300);
    let server = Server::subject(&[]);
    let (mut control, mut client) = (server.connect(), server.connect());
    let pause = PAUSE.as_millis();

    assert!(control.line(&format!("CLIENT PAUSE {pause} WRITE")).is_status("OK"));
    let start = Instant::now();
    client.line("GET a");
    assert!(start.elapsed() < PAUSE / 2, "a read waited for a pause of writes");
    client.line("SET a 1");
    assert!(start.elapsed() >= PAUSE - Duration::from_millis(5), "a write did not wait");

    for (inside, waits) in [("GET a", false), ("INCR a", true)] {
        assert!(control.line(&format!("CLIENT PAUSE {pause} WRITE")).is_status("OK"));
        let start = Instant::now();
        client.send(format!("MULTI\r\n{inside}\r\nEXEC\r\n").as_bytes()).expect("it reads");
        (0..3).for_each(|_| drop(client.read().expect("a reply")));
        assert_eq!(start.elapsed() >= PAUSE / 2, waits, "EXEC of {inside}");
        std::thread::sleep(PAUSE.saturating_sub(start.elapsed()));
    }

    assert!(control.line(&format!("CLIENT PAUSE {pause} ALL")).is_status("OK"));
    let start = Instant::now();
    client.line("GET a");
    assert!(start.elapsed() >= PAUSE - Duration::from_millis(5), "a read did not wait");
}

/// What a server answers about keys whose time comes while writes are paused.
fn during_a_pause(server: &Server) -> Vec<String> {
    const LIFE: Duration = Duration::from_millis(150);
    const PAUSE: Duration = Duration::from_millis(1000);
    let (mut client, mut early) = (server.connect(), server.connect());
    let mut late = server.connect();
    let mut answers: Vec<String> = Vec::new();
    let ask = |client: &mut Client, lines: &[&str], answers: &mut Vec<String>| {
        answers.extend(lines.iter().map(|line| format!("{line}: {}", client.line(line))));
    };
    let life = LIFE.as_millis();
    let set = format!("SET timed 1 PX {life}");
    ask(&mut client, &["SET stays 1", &set, "EXPIRE stays 100"], &mut answers);
    ask(&mut early, &["WATCH timed", "MULTI", "GET stays"], &mut answers);
    let start = Instant::now();
    ask(&mut client, &[&format!("CLIENT PAUSE {} WRITE", PAUSE.as_millis())], &mut answers);
    std::thread::sleep(LIFE * 2);
    let reads = [
        "GET timed",
        "MGET timed stays",
        "TTL timed",
        "PTTL timed",
        "TYPE timed",
        "STRLEN timed",
        "SCAN 0",
        "KEYS *",
        "DBSIZE",
    ];
    ask(&mut client, &reads, &mut answers);
    ask(&mut early, &["EXEC"], &mut answers);
    ask(&mut late, &["WATCH timed", "MULTI", "GET stays", "GET timed"], &mut answers);
    assert!(start.elapsed() < PAUSE, "the machine is too slow for this test");
    std::thread::sleep(PAUSE - start.elapsed() + LIFE);
    ask(&mut client, &["GET timed", "DBSIZE"], &mut answers);
    // That a key goes which was not to be seen any more is no change.
    ask(&mut late, &["EXEC"], &mut answers);
    answers
}

#[test]
fn keys_whose_time_comes_during_a_pause_stay_unseen() {
    let subject = during_a_pause(&Server::subject(&[]));
    assert_eq!(subject, during_a_pause(&Server::oracle(&[])));
    assert!(subject.contains(&"DBSIZE: :2".to_owned()), "{subject:?}");
}

#[test]
fn config_answers_and_takes_what_exists() {
    let server = Server::subject(&[]);
    let mut client = server.connect();
    let port = client.line("CONFIG GET port");
    assert_eq!(port.to_string(), format!("*[\"port\", \"{}\"]", server.port()));
    assert_eq!(client.line("CONFIG GET no-such-setting").to_string(), "*[]");
    let unknown = client.line("CONFIG SET no-such-setting 1");
    assert!(unknown.is_error() && unknown.to_string().contains("no-such-setting"), "{unknown}");
    assert!(client.line("CONFIG GET *").elements().is_some_and(|pairs| pairs.len() > 2));
}

/// A list of 20,000 elements of 100 bytes.
fn fill_list(client: &mut Client) {
    let element = "e".repeat(100);
    for _ in 0..20 {
        let mut command = vec!["RPUSH", "list"];
        command.extend(std::iter::repeat_n(element.as_str(), 1_000));
        client.call(&command);
    }
}

#[test]
fn a_client_for_which_too_much_waits_is_disconnected() {
    let server = Server::subject(&[]);
    let mut control = server.connect();
    fill_list(&mut control);
    let limit = |control: &mut Client, limit: &str| {
        let set = control.call(&["CONFIG", "SET", "client-output-buffer-limit", limit]);
        assert!(set.is_status("OK"), "{set}");
    };
    // The hard limit counts what a reply keeps alive, whether it is encoded or not.
    limit(&mut control, "normal 1mb 0 0");
    let mut slow = server.connect();
    slow.send(b"LRANGE list 0 -1\r\n").expect("the server reads");
    assert_closed(&mut slow, "a client beyond the hard limit");
    assert_eq!(control.line("LRANGE list 0 999").elements().map(<[_]>::len), Some(1_000));
    // The soft limit gives it a second.
    limit(&mut control, "normal 0 1mb 1");
    let mut slow = server.connect();
    slow.send(&b"LRANGE list 0 -1\r\n".repeat(5)).expect("the server reads");
    std::thread::sleep(Duration::from_millis(2_000));
    assert_closed(&mut slow, "a client that stays beyond the soft limit");
    // Who reads in time stays.
    let mut quick = server.connect();
    for _ in 0..20 {
        assert_eq!(quick.line("LRANGE list 0 -1").elements().map(<[_]>::len), Some(20_000));
    }
    limit(&mut control, "normal 0 0 0");
    let mut slow = server.connect();
    slow.send(&b"LRANGE list 0 -1\r\n".repeat(5)).expect("the server reads");
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..5 {
        assert_eq!(slow.read().expect("a reply").elements().map(<[_]>::len), Some(20_000));
    }
}
