//! What became of servers that were to be taken over, for people and for scripts.

use std::path::Path;

use comfy_table::{Cell, Color, ColumnConstraint};
use serde_json::json;

use crate::app::shown;
use crate::cli::print;
use crate::config::edit::Edit;
use crate::config::import::{Item, State};
use crate::error::{Class, Fault};
use crate::wire::text::visible;

/// Longest text of one cell; names are whatever somebody wrote.
const SHOWN: usize = 400;

/// Everything that is said.
pub(super) struct Report<'r, 'e> {
    pub(super) edit: &'r Edit<'e>,
    /// The file, and how it was read; none for what was given on the command line.
    pub(super) source: Option<(&'r Path, &'r str)>,
    pub(super) items: &'r [Item],
    pub(super) written: bool,
    pub(super) dry: bool,
}

impl Report<'_, '_> {
    /// For people.
    pub(super) fn lines(&self, colours: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if self.items.is_empty() {
            lines.push("it holds no servers".to_owned());
        } else {
            lines.push(self.servers(colours));
        }
        lines.extend(self.to_set());
        lines.extend(self.notes());
        if self.dry && !self.edit.is_empty() {
            lines.push(format!("\nwould be written to {}:\n", shown(self.edit.path())));
            lines.push(self.edit.text().trim_end().to_owned());
        }
        lines.push(format!("\n{}", self.end()));
        lines
    }

    fn servers(&self, colours: bool) -> String {
        let mut table = print::table(&["SERVER", "BECOMES", "WHAT OR WHY"]);
        for item in self.items {
            let state = Cell::new(word(item.state));
            let state = if colours { state.fg(colour(item.state)) } else { state };
            table.add_row([Cell::new(name(item)), state, Cell::new(visible(&item.why, SHOWN))]);
        }
        table.trim_fmt()
    }

    fn to_set(&self) -> Option<String> {
        let mut table = print::table(&["TO SET", "FOR"]);
        // A name that is broken in two cannot be copied.
        table.column_mut(0)?.set_constraint(ColumnConstraint::ContentWidth);
        let mut any = false;
        for item in self.items {
            for needed in &item.needed {
                any = true;
                let place = match self.source {
                    _ if !needed.lies => String::new(),
                    Some((file, _)) => format!("; its value lies in {}, {}", shown(file), visible(&item.place, SHOWN)),
                    None => format!("; its value lies in {}", item.place),
                };
                let what = format!("{}: {}{place}", name(item), visible(&needed.of, SHOWN));
                table.add_row([needed.variable.clone(), what]);
            }
        }
        any.then(|| format!("\n{}", table.trim_fmt()))
    }

    fn notes(&self) -> Option<String> {
        let mut table = print::table(&["SERVER", "NOTE"]);
        let notes = self.items.iter().flat_map(|item| item.notes.iter().map(move |note| (item, note)));
        let rows: Vec<_> = notes.map(|(item, note)| [name(item), visible(note, SHOWN)]).collect();
        let any = !rows.is_empty();
        table.add_rows(rows);
        any.then(|| format!("\n{}", table.trim_fmt()))
    }

    /// What was done, and what to do next.
    fn end(&self) -> String {
        let count = |states: &[State]| self.items.iter().filter(|item| states.contains(&item.state)).count();
        let taken = count(&[State::Taken, State::Translated, State::Disabled]);
        let refused = count(&[State::Refused]);
        let mut parts = vec![match (taken, self.written) {
            (0, _) => "nothing was written".to_owned(),
            (_, false) => format!("nothing was written: {} would be taken", servers(taken)),
            (_, true) => format!("{} written to {}", servers(taken), shown(self.edit.path())),
        }];
        if refused > 0 {
            parts.push(format!("{refused} refused"));
        }
        if !self.written {
            return parts.join(", ");
        }
        let secrets = self.items.iter().any(|item| !item.needed.is_empty());
        let mut next = Vec::new();
        if secrets {
            next.push("set the variables above, or write \"file:/PATH\" for \"env:NAME\"");
        }
        next.push("say with egress = [\"host:port\"] what each may reach: else it is nothing");
        next.push("run \"bulkhead lock\"");
        format!("{}\nnext: {}", parts.join(", "), next.join("\n      "))
    }

    /// For scripts.
    pub(super) fn json(&self) -> Result<String, Fault> {
        let server = |item: &Item| {
            let needed: Vec<_> = item
                .needed
                .iter()
                .map(|n| json!({"variable": n.variable, "of": n.of, "value_lies_in_file": n.lies}))
                .collect();
            json!({
                "server": item.name, "written_as": item.written, "place": item.place, "becomes": word(item.state),
                "why": item.why, "notes": item.notes, "to_set": needed,
            })
        };
        let report = json!({
            "file": self.source.map(|(file, _)| shown(file)),
            "form": self.source.map(|(_, form)| form),
            "config": shown(self.edit.path()),
            "written": self.written,
            "servers": self.items.iter().map(server).collect::<Vec<_>>(),
            "toml": self.edit.text(),
        });
        let text = serde_json::to_string(&report);
        let text = text.map_err(|e| Fault::new(Class::Bug, format!("the report cannot be written: {e}")))?;
        Ok(print::harmless(&text))
    }
}

fn name(item: &Item) -> String {
    visible(item.name.as_deref().unwrap_or(&item.written), 64)
}

fn servers(count: usize) -> String {
    format!("{count} {}", if count == 1 { "server" } else { "servers" })
}

fn word(state: State) -> &'static str {
    match state {
        State::Taken => "taken",
        State::Translated => "translated",
        State::Unchanged => "unchanged",
        State::Disabled => "disabled",
        State::Refused => "refused",
    }
}

fn colour(state: State) -> Color {
    match state {
        State::Taken | State::Translated => Color::Green,
        State::Unchanged => Color::Reset,
        State::Disabled => Color::Yellow,
        State::Refused => Color::Red,
    }
}
