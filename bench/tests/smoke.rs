//! Every bench in small, against the server's binary: that it works and fills every column. Times
//! are not judged.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

/// Runs a bench with `--json` and returns its table and its rows.
///
/// Panics with what it said when it fails.
fn bench(name: &str, arguments: &[&str]) -> (String, Vec<Value>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let file = format!("evenkeel-bench-{}-{number}.json", std::process::id());
    let file = std::env::temp_dir().join(file);
    let output = run(|command| {
        command.arg(name).args(arguments).arg("--json").arg(&file);
    });
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {table}{errors}");
    let text = std::fs::read_to_string(&file).expect("the bench has written its file");
    std::fs::remove_file(&file).ok();
    let json: Value = serde_json::from_str(&text).expect("the file is JSON");
    assert_eq!(json["bench"], name);
    (table, json["rows"].as_array().expect("there are rows").clone())
}

fn run(with: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command.env("EVENKEEL_BIN", binary());
    with(&mut command);
    command.output().expect("the bench can be started")
}

/// The binary under test: `EVENKEEL_BIN`, or the quick build.
fn binary() -> PathBuf {
    let own = Path::new(env!("CARGO_BIN_EXE_bench"));
    let target = own.parent().and_then(Path::parent).expect("a binary is in target/PROFILE");
    let binary = std::env::var_os("EVENKEEL_BIN")
        .map_or_else(|| target.join("quick/evenkeel"), PathBuf::from);
    assert!(
        binary.is_file(),
        "{} does not exist: `cargo xtask test build bench` builds it and runs these tests",
        binary.display()
    );
    binary
}

/// Every row of a table has a cell in every column, and no cell is empty but where it may be.
fn assert_filled(table: &str, columns: usize, rows: usize) {
    let lines: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(lines.len(), rows + 1, "{table}");
    for line in &lines {
        assert_eq!(line.len(), columns, "{line:?} of\n{table}");
        assert!(!line.contains(&"-"), "{line:?} of\n{table}");
    }
}

#[test]
fn stall_finishes_every_scenario() {
    let arguments = ["--elements", "2000", "--phase-ms", "40", "--workers", "2"];
    let (table, rows) = bench("stall", &arguments);
    assert_filled(&table, 13, rows.len());
    assert!(rows.len() >= 30, "{table}");
    for row in &rows {
        assert_eq!(row["failure"], Value::Null, "{row}");
        for phase in ["idle", "control", "heavy"] {
            let number = |name: &str| row[phase][name].as_f64().unwrap_or(0.0);
            assert!(number("requests") > 0.0, "{phase} of {row}");
            assert!(number("worst_ms") >= number("p999_ms"), "{phase} of {row}");
            assert!(number("p999_ms") > 0.0, "{phase} of {row}");
        }
        assert!(row["holds_over_50us"].is_number() && row["turns_over_1ms"].is_number(), "{row}");
    }
}

#[test]
fn stall_measures_any_server() {
    let arguments = ["--only", "lrange-all,scan-count", "--elements", "2000", "--phase-ms", "40"];
    let (_, rows) = bench("stall", &[&arguments[..], &["--runs", "2", "--reference"]].concat());
    let servers: Vec<&Value> = rows.iter().map(|row| &row["server"]).collect();
    assert_eq!(servers, ["evenkeel", "redis", "evenkeel", "redis"]);
    for row in &rows {
        assert_eq!(row["runs"], 2, "{row}");
        assert_eq!(row["failure"], Value::Null, "{row}");
        assert_eq!(row["holds_over_50us"].is_null(), row["server"] == "redis", "{row}");
    }
}

#[test]
fn machine_watches_every_processor() {
    let (table, rows) = bench("machine", &["--seconds", "0.1"]);
    assert_filled(&table, 5, rows.len());
    for row in &rows {
        assert!(row["longest_us"].as_f64() > Some(0.0), "{row}");
    }
}

#[test]
fn speed_runs_every_test() {
    let arguments = ["--requests", "2000", "--rounds", "1", "--depth", "1,16", "--keys", "100"];
    let (table, rows) = bench("speed", &[&arguments[..], &["--workers", "1"]].concat());
    assert_filled(&table, 12, 7 * 2);
    for row in &rows {
        for server in ["evenkeel", "redis", "ratio", "control_ratio"] {
            let figure = row["requests_per_second"][server].as_f64().unwrap_or(0.0);
            assert!(figure > 0.0, "{server} of {row}");
            assert!(row["cpu_us_per_command"][server].is_number(), "{server} of {row}");
        }
    }
}

#[test]
fn memory_measures_every_case() {
    let (table, rows) = bench("memory", &["--elements", "20000"]);
    assert_filled(&table, 8, 5);
    for row in &rows {
        let used = &row["used_bytes_per_element"];
        assert!(used["evenkeel"].as_f64().is_some_and(|bytes| bytes > 8.0), "{row}");
        assert!(used["redis"].as_f64().is_some_and(|bytes| bytes > 8.0), "{row}");
    }
}

#[test]
fn mistakes_are_named() {
    for (arguments, expected) in [
        (&["stall", "--only", "nothing"][..], "no scenario is called nothing; there are pop-1-"),
        (&["speed", "--only", "nothing"], "no test is called nothing; there are set"),
        (&["memory", "--only", "nothing"], "no case is called nothing; there are strings"),
        (&["stall", "--elements", "0"], "invalid value '0' for '--elements"),
        (&["stall", "--runs", "many"], "invalid value 'many' for '--runs"),
        (&["stall", "--flush"], "--port"),
        (&["stall", "--port", "1", "--workers", "2"], "cannot be used with '--workers"),
        (&["stall", "--port", "1"], "does a server listen there?"),
        (&["stall", "--binary", "no/such"], "no/such does not exist"),
        (&["memory", "--json", "no/such/file"], "--json no/such/file"),
        (&["other"], "unrecognized subcommand 'other'"),
    ] {
        let output = run(|command| {
            command.args(arguments);
        });
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
    }
}
