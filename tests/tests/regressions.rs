//! Bugs that were found, each with its story: what several clients do, compared with redis-server.

use tests::client::{Client, show};
use tests::judge::Judge;
use tests::reply::Reply;
use tests::server::Server;

/// The same clients on both servers.
struct Pair {
    subject: Server,
    oracle: Server,
    clients: Vec<(Client, Client)>,
}

impl Pair {
    fn new() -> Pair {
        let subject = Server::subject_with_own(&["--workers", "2"]);
        let oracle = Server::oracle(&[]);
        let clients = (0..2).map(|_| (subject.connect(), oracle.connect())).collect();
        Pair { subject, oracle, clients }
    }

    /// What client `number` is answered, by both alike.
    fn call<A: AsRef<[u8]>>(&mut self, number: usize, arguments: &[A], judge: &Judge) -> Reply {
        let (ours, theirs) = &mut self.clients[number];
        let (ours, theirs) = (ours.call(arguments), theirs.call(arguments));
        assert!(
            judge.accepts(&ours, &theirs),
            "{number}> {}\n  subject {ours:#}\n  oracle  {theirs:#}",
            show(arguments)
        );
        ours
    }

    /// Lines such as `1> GET k`: the number of the client and its command.
    fn run(&mut self, case: &str) {
        eprintln!("case:\n{case}");
        self.call(0, &["FLUSHALL"], &Judge::Exact);
        for line in case.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (number, command) = line.split_once("> ").expect("a client's number comes first");
            let number: usize = number.parse().expect("it is a number");
            let words: Vec<&str> = command.split(' ').collect();
            self.call(number, &words, &Judge::Exact);
        }
        for number in 0..self.clients.len() {
            self.clients[number] = (self.subject.connect(), self.oracle.connect());
        }
    }
}

/// INCR took only values that were stored as integers, but APPEND and SETRANGE stored the text.
#[test]
fn incr_reads_what_append_and_setrange_have_written() {
    let mut pair = Pair::new();
    pair.run(
        "0> APPEND a 76
         0> INCR a
         0> SET b 1234
         0> SETRANGE b 1 9
         0> INCR b
         0> SETRANGE c 0 5
         0> INCR c
         0> SETRANGE d 3 5
         0> INCR d
         0> SETRANGE d 0 123
         0> INCR d
         0> APPEND d x
         0> INCR d",
    );
}

/// UNWATCH in MULTI was executed at once, and wrong subcommands were noticed only by EXEC.
#[test]
fn what_is_queued_and_what_is_refused_in_a_transaction() {
    let mut pair = Pair::new();
    for refused in [
        "CLIENT nosuch",
        "CLIENT ID x",
        "CLIENT",
        "CONFIG GET",
        "CONFIG nosuch",
        "COMMAND nosuch",
        "DEBUG nosuch",
        "NOSUCH",
        "GET",
        "WATCH k",
        "MULTI",
        "EXEC x",
        "DISCARD x",
        "UNWATCH x",
    ] {
        pair.run(&format!(
            "0> WATCH k
             0> MULTI
             0> SET k 1
             0> UNWATCH
             0> {refused}
             0> GET k
             0> EXEC
             0> EXEC
             0> GET k"
        ));
    }
}

/// EXEC with an argument answered like any other wrong number of words and left MULTI open.
#[test]
fn exec_with_an_argument_ends_the_transaction() {
    let mut pair = Pair::new();
    pair.run(
        "0> EXEC x
         0> WATCH k
         0> MULTI
         0> SET k 1
         0> EXEC x
         0> GET k
         0> EXEC",
    );
}

/// A watch was compared with the database object at the time of EXEC: what had been at the index in
/// between was missed, then everything after an exchange was refused.
#[test]
fn watch_when_databases_are_exchanged() {
    let end = "0> MULTI\n0> SET ran yes\n0> EXEC\n0> GET ran";
    for between in [
        "1> FLUSHALL",
        "1> SET k 1\n1> FLUSHALL",
        "1> FLUSHALL\n1> SET k 1\n1> DEL k",
        "1> SWAPDB 0 1\n1> SWAPDB 0 1",
        "1> SWAPDB 0 1\n1> SET k 1\n1> DEL k",
        "1> SWAPDB 0 1\n1> SELECT 1\n1> SET k 1",
        "1> SELECT 1\n1> SET k 1\n1> SWAPDB 0 1\n1> SWAPDB 0 1",
        "1> SELECT 1\n1> SET k 1\n1> SWAPDB 0 1\n1> SELECT 0\n1> DEL k",
        "1> SELECT 1\n1> SET k 1\n1> DEL k\n1> SWAPDB 0 1",
        "1> SET other 1\n1> SWAPDB 0 1",
        "1> SWAPDB 0 0",
        "1> SWAPDB 1 2",
        "1> MULTI\n1> SWAPDB 0 1\n1> SET k 1\n1> SWAPDB 0 1\n1> EXEC",
        "1> MULTI\n1> SET other 1\n1> SWAPDB 0 1\n1> FLUSHALL\n1> EXEC",
        "0> SELECT 1\n0> WATCH k\n1> SWAPDB 0 1\n1> SET k 1",
        "0> SELECT 1\n0> WATCH k\n1> SWAPDB 0 1\n0> UNWATCH\n1> SET k 1",
    ] {
        for before in ["0> WATCH k", "0> SET k 0\n0> WATCH k", "0> WATCH a k b\n1> WATCH k"] {
            Pair::new().run(&format!("{before}\n{between}\n{end}"));
        }
    }
}

/// LTRIM that cuts nothing off did not tell who watches the list.
#[test]
fn ltrim_touches_a_list_even_if_it_keeps_all() {
    let mut pair = Pair::new();
    pair.run(
        "0> RPUSH l a b
         0> WATCH l
         1> LTRIM l 0 -1
         0> MULTI
         0> PING
         0> EXEC",
    );
}

/// SUNIONSTORE of more keys than one hold covers overran the room for them; the destination may be
/// among them.
#[test]
fn a_union_of_more_keys_than_a_hold_covers() {
    let mut pair = Pair::new();
    let keys: Vec<String> = (0..150).map(|key| format!("k{key}")).collect();
    for (number, key) in keys.iter().enumerate() {
        let members = [number, number + 1].map(|member| member.to_string());
        pair.call(0, &["SADD", key, &members[0], &members[1]], &Judge::Exact);
    }
    for count in [64, 65, 150] {
        for destination in ["union", "k7"] {
            let mut command = vec!["SUNIONSTORE", destination];
            command.extend(keys.iter().take(count).map(String::as_str));
            pair.call(0, &command, &Judge::Exact);
            pair.call(1, &["SMEMBERS", destination], &Judge::Unordered);
        }
    }
    let mut command = vec!["SUNIONSTORE", "union", "none"];
    command.extend(std::iter::repeat_n("none", 100));
    pair.call(0, &command, &Judge::Exact);
    pair.call(0, &["TYPE", "union"], &Judge::Exact);
}

/// Members of one hold copied parts of a set of which another client's reply was still being sent;
/// in debug builds the hold's limit ended the server.
#[test]
fn many_members_are_added_to_a_set_that_is_being_sent() {
    let server = Server::subject(&[]);
    let mut client = server.connect();
    for batch in 0..200 {
        let members: Vec<String> = (0..500).map(|one| format!("{batch}-{one}")).collect();
        let mut command = vec!["SADD", "set"];
        command.extend(members.iter().map(String::as_str));
        client.call(&command);
    }
    let mut slow = server.connect();
    for round in 0..20 {
        slow.send(b"SMEMBERS set\r\n").expect("the server reads");
        let members: Vec<String> = (0..32).map(|one| format!("round-{round}-{one}")).collect();
        let mut command = vec!["SADD", "set"];
        command.extend(members.iter().map(String::as_str));
        assert_eq!(client.call(&command).integer(), Some(32));
    }
    for round in 0..20 {
        let count = slow.read().expect("a reply").elements().map(<[_]>::len);
        assert!(count.is_some_and(|count| count >= 100_000 + 32 * round), "{count:?}");
    }
}

/// A transaction of 32 commands ran in one hold whatever they met.
#[test]
fn a_transaction_of_expensive_commands_stays_within_its_holds() {
    let server = Server::subject(&[]);
    let mut client = server.connect();
    let value = "v".repeat(8_192);
    let element = "e".repeat(100);
    for key in 0..32 {
        client.call(&["SET", &format!("string:{key}"), &value]);
        let list = format!("list:{key}");
        let mut command = vec!["RPUSH", &list];
        command.extend(std::iter::repeat_n(element.as_str(), 3_000));
        client.call(&command);
    }
    for commands in [
        (0..32).map(|key| format!("LTRIM list:{key} 100 -100")).collect::<Vec<_>>(),
        (0..32).map(|key| format!("RPOP list:{key} 1000")).collect(),
        (0..32).map(|key| format!("GET string:{key}")).collect(),
        (0..32).map(|key| format!("APPEND string:{key} x")).collect(),
        (0..32).map(|key| format!("DEL list:{key}")).collect(),
    ] {
        client.line("MULTI");
        commands.iter().for_each(|command| assert!(client.line(command).is_status("QUEUED")));
        let replies = client.line("EXEC");
        assert_eq!(replies.elements().map(<[_]>::len), Some(32), "{}", commands[0]);
        assert!(replies.elements().is_some_and(|all| all.iter().all(|one| !one.is_error())));
    }
    let many: Vec<String> = (0..32).map(|key| format!("string:{key}")).collect();
    let mut command = vec!["MGET"];
    command.extend(many.iter().map(String::as_str));
    assert_eq!(client.call(&command).elements().map(<[_]>::len), Some(32));
}

/// Names and members longer than this were copied and compared under a latch.
#[test]
fn keys_and_members_have_a_longest_length() {
    let server = Server::subject(&[]);
    let mut client = server.connect();
    let (key, member) = (vec![b'k'; 64 * 1024], vec![b'm'; 256 * 1024]);
    assert!(client.call(&[&b"SET"[..], &key, b"v"]).is_status("OK"));
    assert_eq!(client.call(&[&b"SADD"[..], b"set", &member, b"a"]).integer(), Some(2));
    assert_eq!(client.call(&[&b"SADD"[..], b"set", &member, b"b"]).integer(), Some(1));
    let (key, member) = ([key, b"k".to_vec()].concat(), [member, b"m".to_vec()].concat());
    for command in [
        vec![&b"GET"[..], &key],
        vec![&b"MSET"[..], b"a", &key, &key, b"v"],
        vec![&b"DEL"[..], b"a", &key],
        vec![&b"SADD"[..], b"set", b"c", &member],
    ] {
        assert!(client.call(&command).is_error(), "{}", show(&command));
    }
    assert!(client.call(&[&b"MSET"[..], b"a", &key, b"b", b"v"]).is_status("OK"));
    assert_eq!(client.line("DBSIZE").integer(), Some(4));
}

/// APPEND and SETRANGE allowed 512 MiB whatever `proto-max-bulk-len` said.
#[test]
fn strings_are_as_long_as_configured() {
    let mut pair = Pair::new();
    let long = "x".repeat(100_000);
    pair.run(&format!(
        "0> CONFIG SET proto-max-bulk-len 1mb
         0> SETRANGE a 1048575 x
         0> SETRANGE a 1048576 x
         0> SETRANGE b 1048576 x
         0> SETRANGE b 9223372036854775807 x
         0> SETRANGE b 2000000 {long}
         0> SETRANGE b 1000000 {long}
         0> SETRANGE a 1000000 {long}
         0> APPEND a x
         0> APPEND a {long}
         0> TYPE b
         0> APPEND b {long}
         0> SETRANGE b 948577 {long}
         0> SETRANGE b 948576 {long}
         0> RPUSH l a
         0> APPEND l {long}
         0> SETRANGE l 2000000 x
         0> SETRANGE l 2000000 {long}
         0> MULTI
         0> APPEND a x
         0> SETRANGE a 5 {long}
         0> EXEC
         0> CONFIG SET proto-max-bulk-len 2mb
         0> APPEND a {long}
         1> CONFIG SET proto-max-bulk-len 1mb
         0> STRLEN a
         0> SETRANGE a 0 y
         0> SETRANGE a 1100000 y
         0> APPEND a y
         0> CONFIG SET proto-max-bulk-len 1gb
         0> SETRANGE a 600000000 x
         0> APPEND a {long}
         1> STRLEN a"
    ));
}

/// The longest string there may be, of which nearly nothing is written.
#[test]
fn the_longest_string() {
    let mut pair = Pair::new();
    pair.run(
        "0> SETRANGE s 536870911 x
         0> STRLEN s
         0> APPEND s y
         0> SETRANGE s 536870911 yz
         0> SETRANGE s 300000000 middle
         0> STRLEN s
         1> INCR s
         0> MULTI
         0> STRLEN s
         0> APPEND s z
         0> EXEC
         1> TYPE s
         1> SET s short
         0> STRLEN s",
    );
}
