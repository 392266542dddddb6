//! Runs every transcript file: recorded behaviour that the server must repeat.

use tests::server::Server;
use tests::settings;
use tests::transcript::{self, Outcome};

#[test]
fn every_transcript_is_repeated() {
    let server = Server::subject(&[]);
    let mut outcome = Outcome::default();
    for (name, text) in transcript_files() {
        let cases = transcript::parse(&text).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        transcript::run(&server, &name, &cases, &mut outcome);
    }
    let waiting: usize = outcome.waiting.values().sum();
    eprintln!(
        "summary: {} replies as expected, {waiting} steps wait for a command",
        outcome.passed
    );
    for (command, steps) in &outcome.waiting {
        eprintln!("summary: waiting for {command}: {steps} steps");
    }
    let failures = outcome.failures.join("\n");
    assert!(outcome.failures.is_empty(), "{} differ:\n{failures}", outcome.failures.len());
    assert!(outcome.passed > 0, "no transcript was judged");
}

/// Name and text of each file, sorted by name.
fn transcript_files() -> Vec<(String, String)> {
    let folder = settings::crate_directory().join("transcripts");
    let mut files: Vec<(String, String)> = std::fs::read_dir(&folder)
        .expect("the folder of transcripts exists")
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("a transcript is UTF-8 text"))
        })
        .collect();
    files.sort();
    files
}
