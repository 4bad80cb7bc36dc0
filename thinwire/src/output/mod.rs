//! What the user sees.

mod files;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod table;

use std::io::Write as _;

pub(crate) use files::{Files, check, write};

use crate::error::{Error, When as _};
use crate::train::{Outcome, compare_with_dense};

/// Prints the table, and writes the picture and the JSON file.
pub(crate) fn present(mut outcomes: Vec<Outcome>, files: &Files) -> Result<(), Error> {
    compare_with_dense(&mut outcomes);
    print(&table::render(&outcomes));
    write(&files.plot, plot::draw(&outcomes).run()?.as_bytes()).run()?;
    let mut written = format!("Losses are drawn in {}", files.plot.display());
    if let Some(json) = &files.json {
        let mut text = serde_json::to_string_pretty(&outcomes).run()?;
        text.push('\n');
        write(json, text.as_bytes()).run()?;
        written.push_str(&format!(", the results are in {}", json.display()));
    }
    print(&written);
    Ok(())
}

/// A line on standard output. That nobody reads it is no reason to fail.
pub(crate) fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
