//! What people and programs read: aligned tables on standard output, JSON in a file, a progress
//! bar when somebody watches.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

/// A column: its title, and the width of its widest cell.
pub(crate) type Column = (&'static str, usize);

/// A table that is shown line by line while it grows, below a progress bar.
pub(crate) struct Table {
    /// The first one is aligned left, the others right.
    columns: Vec<Column>,
    progress: ProgressBar,
}

impl Table {
    /// Shows the titles. `steps` are those of the progress bar.
    pub(crate) fn new(columns: &[Column], steps: usize) -> Table {
        let progress = ProgressBar::new(steps as u64);
        let template = "{bar:20} {pos}/{len} {elapsed} {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.set_style(style);
        }
        progress.enable_steady_tick(Duration::from_millis(500));
        let table = Table { columns: columns.to_vec(), progress };
        let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).to_owned()).collect();
        table.show(&line(&table.columns, &titles));
        table
    }

    /// Says what is done now.
    pub(crate) fn doing(&self, what: &str) {
        self.progress.set_message(what.to_owned());
    }

    /// One step is done.
    pub(crate) fn advance(&self) {
        self.progress.inc(1);
    }

    /// Shows a row; cells that have no value are shown as a dash.
    pub(crate) fn row(&self, cells: &[String]) {
        self.show(&line(&self.columns, cells));
    }

    /// Shows a line that is no row.
    pub(crate) fn show(&self, text: &str) {
        self.progress.suspend(|| say(text));
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.progress.finish_and_clear();
    }
}

/// Writes a line to standard output. A reader who went away is no reason to stop.
pub(crate) fn say(text: &str) {
    let mut output = io::stdout().lock();
    writeln!(output, "{text}").and_then(|()| output.flush()).ok();
}

fn line(columns: &[Column], cells: &[String]) -> String {
    let mut line = String::new();
    for (at, (title, width)) in columns.iter().enumerate() {
        let cell = cells.get(at).map_or("-", String::as_str);
        let width = (*width).max(title.chars().count());
        match at {
            0 => line.push_str(&format!("{cell:<width$}")),
            _ => line.push_str(&format!("  {cell:>width$}")),
        }
    }
    line.trim_end().to_owned()
}

/// A number with some decimals, or a dash.
pub(crate) fn cell(value: impl Into<Option<f64>>, decimals: usize) -> String {
    match value.into().filter(|value| value.is_finite()) {
        Some(value) => format!("{value:.decimals$}"),
        None => "-".to_owned(),
    }
}

/// A file for the results as JSON, opened before anything is measured: a name that cannot be
/// written is told at once, not after an hour.
pub(crate) struct Json(Option<(PathBuf, File)>);

impl Json {
    /// Creates the file, if one is wanted.
    pub(crate) fn create(path: Option<&Path>) -> Result<Json, String> {
        let create = |path: &Path| match File::create(path) {
            Ok(file) => Ok((path.to_owned(), file)),
            Err(error) => Err(format!("--json {}: {error}", path.display())),
        };
        path.map(create).transpose().map(Json)
    }

    /// Writes the rows and closes the file.
    pub(crate) fn write(self, bench: &str, rows: Vec<Value>) -> Result<(), String> {
        let Some((path, file)) = self.0 else { return Ok(()) };
        let value = serde_json::json!({ "bench": bench, "rows": rows });
        let mut output = BufWriter::new(file);
        serde_json::to_writer_pretty(&mut output, &value)
            .map_err(io::Error::from)
            .and_then(|()| output.write_all(b"\n"))
            .and_then(|()| output.flush())
            .map_err(|error| format!("--json {}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned() {
        let columns = [("name", 6), ("long title", 3), ("c", 4)];
        let cells = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let rows: [Vec<String>; 2] = [cells(&["a", "1.5", "22"]), cells(&["b", "7"])];
        assert_eq!(line(&columns, &rows[0]), "a              1.5    22");
        assert_eq!(line(&columns, &rows[1]), "b                7     -");
        assert_eq!(cell(1.25, 1), "1.2");
        assert_eq!(cell(None, 1), "-");
        assert_eq!(cell(f64::NAN, 1), "-");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told() {
        let text = Json::create(Some(Path::new("no/such/folder/x"))).err().unwrap_or_default();
        assert!(text.starts_with("--json no/such/folder/x: "), "{text}");
    }
}
