//! Texts with variables in them: what was written beside what it comes to. Knows nothing of what the texts are for.
//!
//! The expanded text may be a secret, so no fault shows it; the written one goes into the digest of a server.

use crate::config::env::Environment;
use crate::config::expand::{Problem, expand};
use crate::config::fault::Place;
use crate::config::reader::Field;

/// Expands the texts of one server, and remembers what they lack.
pub(super) struct Texts<'a> {
    /// Where the variables come from.
    pub(super) env: &'a dyn Environment,
    /// What is missing, in words, and where it is asked for; a server that lacks something is disabled.
    pub(super) needs: Vec<(Place, String)>,
}

/// One text.
pub(super) struct Text {
    /// As it stands in the file.
    pub(super) written: String,
    /// With its variables replaced.
    pub(super) value: String,
}

impl<'a> Texts<'a> {
    /// Nothing is missing yet.
    pub(super) fn new(env: &'a dyn Environment) -> Self {
        Texts { env, needs: Vec::new() }
    }

    /// The text of a field. Where a variable is missing, the written text stands in; it is never used.
    pub(super) fn text(&mut self, field: &Field<'_>) -> Option<Text> {
        let written = field.string()?.to_owned();
        let value = match expand(&written, self.env) {
            Ok(value) => value,
            Err(Problem::Unset(name)) => {
                let text = format!("{} needs the variable {name:?}, which is not set", field.path);
                self.needs.push((field.key_at, text));
                written.clone()
            }
            Err(Problem::Malformed) => {
                field.fault("holds a \"${\" that is none of ${VAR}, ${VAR:-default} and ${env:VAR}");
                return None;
            }
        };
        if value.contains(|c: char| c.is_control() && !"\n\r\t".contains(c)) {
            field.fault("holds a control character");
            return None;
        }
        Some(Text { written, value })
    }

    /// The texts of a list.
    pub(super) fn list(&mut self, field: Option<&Field<'_>>) -> Vec<Text> {
        let items = field.and_then(Field::list).unwrap_or_default();
        items.iter().filter_map(|item| self.text(item)).collect()
    }

    /// A program and its arguments.
    pub(super) fn command(&mut self, field: &Field<'_>) -> Option<Vec<Text>> {
        let words = self.list(Some(field));
        let Some(program) = words.first() else {
            if field.is_empty_list() {
                field.fault("must hold at least the program");
            }
            return None;
        };
        let program = &program.value;
        if program.trim().is_empty() || program.starts_with('-') || program.contains(char::is_control) {
            field.fault("must begin with a program: not blank, without a leading \"-\", on one line");
        }
        Some(words)
    }
}
