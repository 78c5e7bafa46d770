//! All faults of a configuration file at once, each with its place. Knows nothing of what the keys mean.

use std::cell::RefCell;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where something stands in the file; both count from 1, columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// Everything that is wrong with one file, in the order of the file. Shown as one line each:
/// `FILE:LINE:COLUMN: text`, or `FILE: text` where the file as a whole is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    file: PathBuf,
    found: Vec<Found>,
}

/// A text and where it belongs; `None` stands for the whole file.
type Found = (Option<Place>, String);

/// Collects faults while a file is read, so that one run shows them all.
#[derive(Default)]
pub(super) struct Sink {
    found: RefCell<Vec<Found>>,
}

// === impl Sink ===

impl Sink {
    /// Notes a fault at a place.
    pub(super) fn add(&self, at: Place, text: impl Into<String>) {
        self.found.borrow_mut().push((Some(at), text.into()));
    }

    /// Notes a fault of the whole file.
    pub(super) fn whole(&self, text: impl Into<String>) {
        self.found.borrow_mut().push((None, text.into()));
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// The value if nothing was wrong; otherwise every fault. A value is never handed out beside a fault.
    pub(super) fn finish<T>(self, file: &Path, value: Option<T>) -> Result<T, Faults> {
        let mut found = self.found.into_inner();
        match value {
            Some(value) if found.is_empty() => Ok(value),
            _ => {
                found.sort_by_key(|(at, _)| *at);
                Err(Faults { file: file.to_owned(), found })
            }
        }
    }
}

// === impl Faults ===

impl Faults {
    /// What is wrong, without the places.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.found.iter().map(|(_, text)| text.as_str())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        for (index, (at, text)) in self.found.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            match at {
                Some(Place { line, column }) => write!(f, "{end}{file}:{line}:{column}: {text}")?,
                None => write!(f, "{end}{file}: {text}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

/// A text of the file as it may stand in a message: quoted, control characters escaped, cut where it is long.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(LONGEST).collect();
    format!("{head:?}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_the_order_of_the_file_one_line_each() {
        let sink = Sink::default();
        sink.add(Place { line: 10, column: 1 }, "third");
        sink.add(Place { line: 2, column: 7 }, "second");
        sink.whole("first");
        let faults = sink.finish(Path::new("x/b.toml"), Some(())).unwrap_err();
        assert_eq!(faults.to_string(), "x/b.toml: first\nx/b.toml:2:7: second\nx/b.toml:10:1: third");
    }

    #[test]
    fn a_quoted_text_cannot_move_the_cursor_or_fill_the_screen() {
        assert_eq!(quoted("a\u{1b}[2J\n"), r#""a\u{1b}[2J\n""#);
        assert_eq!(quoted(&"x".repeat(1000)).chars().count(), 63);
    }
}
