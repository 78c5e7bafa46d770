//! Results on standard output. Knows no command.

use std::io::{self, IsTerminal as _, Write as _};

use comfy_table::{ContentArrangement, Table, presets};

use crate::config::env::Environment;
use crate::wire::text::visible;

/// Widest table where standard output is no terminal.
const WIDTH: u16 = 80;

/// Prints a text and a line end. A reader that has gone away ends the program's output, not the program.
pub fn line(text: &str) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// A table that fits the terminal.
pub fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_header(head.to_vec());
    if !io::stdout().is_terminal() {
        table.set_width(WIDTH);
    }
    table
}

/// Prints lines as they are.
pub fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Asks somebody at a terminal, and returns what they say; none where nobody can be asked. Who ends the input has said
/// nothing.
pub fn ask(question: &str) -> Option<String> {
    if !io::stdin().is_terminal() {
        return None;
    }
    let mut err = io::stderr().lock();
    let _ = write!(err, "{question}").and_then(|()| err.flush());
    let mut answer = String::new();
    if io::stdin().read_line(&mut answer).is_err() || answer.is_empty() {
        // What comes next is no part of the question.
        let _ = writeln!(err);
    }
    Some(answer)
}

/// Columns of the terminal, or of a page where there is none.
pub fn width() -> usize {
    Table::new().width().unwrap_or(WIDTH).into()
}

/// Whether results may have colours.
pub fn colours(env: &dyn Environment) -> bool {
    io::stdout().is_terminal() && env.var("NO_COLOR").is_none_or(|v| v.is_empty())
}

/// JSON in which nothing acts on a terminal: beyond ASCII there are only the contents of strings.
pub fn harmless(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if (c.is_ascii() && c != '\u{7f}') || visible(c.encode_utf8(&mut [0; 4]), 1).starts_with(c) {
            out.push(c);
        } else {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}
