//! The clients that people use: redis-cli, redis-benchmark and redis-py.

use std::process::{Command, Output};

use tests::server::Server;
use tests::settings;

fn run(program: &str, server: &Server, arguments: &[&str]) -> String {
    settings::require_program(program);
    let output = Command::new(program)
        .args(["-h", "127.0.0.1", "-p", &server.port()])
        .args(arguments)
        .output()
        .expect("an installed program can be started");
    text_of(&output, &format!("{program} {}", arguments.join(" ")))
}

fn text_of(output: &Output, what: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{text}\n{errors}", output.status);
    text
}

#[test]
fn the_log_says_when_the_server_is_ready() {
    let server = Server::subject(&[]);
    assert!(server.log().contains("Ready to accept connections"), "{}", server.log());
}

#[test]
fn redis_cli() {
    let server = Server::subject(&[]);
    let cases: &[(&[&str], &str)] = &[
        (&["PING"], "PONG\n"),
        (&["SET", "k", "a b"], "OK\n"),
        (&["GET", "k"], "a b\n"),
        (&["GET", "nokey"], "\n"),
        (&["RPUSH", "l", "1", "2", "3"], "3\n"),
        (&["LRANGE", "l", "0", "-1"], "1\n2\n3\n"),
        (&["-3", "SADD", "s", "x"], "1\n"),
        (&["-3", "SMEMBERS", "s"], "x\n"),
        (&["--scan", "--pattern", "[kl]"], ""),
        (&["DBSIZE"], "3\n"),
        (&["-n", "1", "DBSIZE"], "0\n"),
        (&["INCR", "k"], "ERR value is not an integer or out of range\n\n"),
    ];
    for (arguments, wanted) in cases {
        let got = run("redis-cli", &server, arguments);
        if arguments[0] == "--scan" {
            let mut keys: Vec<&str> = got.lines().collect();
            keys.sort_unstable();
            assert_eq!(keys, ["k", "l"]);
        } else {
            assert_eq!(got, *wanted, "redis-cli {}", arguments.join(" "));
        }
    }
    let info = run("redis-cli", &server, &["INFO"]);
    for field in ["redis_version:", "connected_clients:", "used_memory:", "db0:keys=3"] {
        assert!(info.contains(field), "INFO has no {field}\n{info}");
    }
}

#[test]
fn redis_benchmark() {
    let server = Server::subject(&[]);
    let tests = "ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,lrange_100,mset";
    for pipeline in ["1", "16"] {
        let arguments =
            ["-n", "5000", "-r", "1000", "-c", "20", "-P", pipeline, "-t", tests, "--csv"];
        let report = run("redis-benchmark", &server, &arguments);
        assert!(!report.to_lowercase().contains("error"), "{report}");
        assert!(report.lines().count() >= 11, "tests are missing:\n{report}");
    }
}

#[test]
fn redis_py_in_both_protocols() {
    let python = settings::python();
    assert!(python.exists(), "{} is missing: `cargo xtask test` makes it", python.display());
    let server = Server::subject(&[]);
    for protocol in ["2", "3"] {
        let output = Command::new(&python)
            .arg(settings::crate_directory().join("python/basics.py"))
            .args([&server.port(), protocol])
            .output()
            .expect("python runs");
        let text = text_of(&output, &format!("basics.py in RESP{protocol}"));
        assert!(text.contains("all as expected"), "{text}");
    }
}
