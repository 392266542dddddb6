//! Installs what the tests need and is not there: Debian's redis-server as the oracle, its tools,
//! and redis-py in a folder of its own. A machine that has them is left as it is.

use std::collections::HashSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::report::{Outcome, Report, say};
use crate::step::spinner;
use crate::workspace;

/// Programs of the tests and the package that has each.
const PROGRAMS: &[(&str, &str)] = &[
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("redis-benchmark", "redis-tools"),
    ("python3", "python3-venv"),
];

/// How long a server that a package started may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Installs and reports. True when everything is there.
pub(crate) fn run(report: &mut Report) -> bool {
    let start = Instant::now();
    let spinner = spinner("setup");
    let result = programs().and_then(|()| python());
    spinner.finish_and_clear();
    let mut outcome = Outcome::default();
    match result {
        Ok(()) => outcome.passed = 1,
        Err(text) => {
            say(&text);
            outcome.failed = 1;
        }
    }
    report.add("setup", &outcome, start.elapsed());
    outcome.failed == 0
}

fn programs() -> Result<(), String> {
    let mut packages: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let before = redis_servers();
    install(&packages)?;
    // Debian's package may start a server at boot time and now; only the tests need one.
    let started: Vec<u32> = redis_servers().difference(&before).copied().collect();
    started.iter().try_for_each(|process| stop(*process))
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Installs packages with apt-get, which needs root.
fn install(packages: &[&str]) -> Result<(), String> {
    let list = packages.join(" ");
    say(&format!("installing {list}"));
    quietly(Command::new("apt-get").args(["update", "--quiet"]))
        .and_then(|()| {
            let arguments = ["install", "--quiet", "--yes", "--no-install-recommends"];
            quietly(
                Command::new("apt-get")
                    .env("DEBIAN_FRONTEND", "noninteractive")
                    .args(arguments)
                    .args(packages),
            )
        })
        .map_err(|text| format!("install these packages yourself: {list}\n{text}"))
}

/// The processes that are redis-servers.
fn redis_servers() -> HashSet<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return HashSet::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|process| {
            let name = fs::read_to_string(format!("/proc/{process}/comm"));
            name.is_ok_and(|name| name.trim() == "redis-server")
        })
        .collect()
}

fn stop(process: u32) -> Result<(), String> {
    quietly(Command::new("kill").arg(process.to_string()))?;
    let start = Instant::now();
    while redis_servers().contains(&process) {
        if start.elapsed() > STOP_MAX {
            return Err(format!(
                "the redis-server that a package started, {process}, does not end"
            ));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Makes the folder with redis-py when it is not usable.
fn python() -> Result<(), String> {
    let requirements = workspace::root().join("tests/python/requirements.txt");
    let stamp = workspace::target().join("python/requirements.txt");
    let (wanted, present) = (fs::read(&requirements), fs::read(&stamp));
    if wanted.is_ok() && present.is_ok() && wanted.ok() == present.ok() {
        return Ok(());
    }
    let folder = workspace::target().join("python");
    let make = || quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder));
    // Debian's python has the module for it in a package of its own.
    make().or_else(|_| install(&["python3-venv"]).and_then(|()| make()))?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    quietly(Command::new(workspace::python()).args(pip).arg(&requirements))?;
    fs::copy(&requirements, &stamp).map_err(|error| format!("{}: {error}", stamp.display()))?;
    Ok(())
}

/// Runs a command; the error is what it said.
fn quietly(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&said)))
}
