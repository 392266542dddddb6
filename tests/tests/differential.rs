//! Random commands against redis-server, in both protocols.

use tests::differential::run;
use tests::server::Server;
use tests::settings;

/// Commands per protocol in the short form.
const COMMANDS: u64 = 20_000;

fn compare(protocol: u8, own_options: &[&str]) {
    let subject = Server::subject_with_own(own_options);
    let oracle = Server::oracle(&[]);
    let commands = settings::number("EVENKEEL_COMMANDS", COMMANDS);
    let seed = settings::seed();
    eprintln!("RESP{protocol}: {commands} commands, EVENKEEL_SEED={seed}");
    if let Err(difference) = run(&subject, &oracle, protocol, seed, commands) {
        panic!("{difference}");
    }
}

#[test]
fn resp2_with_one_worker() {
    compare(2, &["--workers", "1"]);
}

#[test]
fn resp3_with_two_workers_sharded_by_slot() {
    compare(3, &["--workers", "2", "--shard-by", "slot"]);
}
