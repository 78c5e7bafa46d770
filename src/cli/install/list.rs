//! The clients, their files, and where the entry is.

use std::path::Path;

use crate::app::shown;
use crate::clients::edit::{self, Target};
use crate::clients::{Client, Original, Place, System, Whose};
use crate::config::env::{Environment, directory};
use crate::error::{Exit, Fault};

use super::super::print;
use super::{absolute, this_program};

/// Shows every client. Nothing that is wrong with one client's file is in the way of the others.
pub(super) fn run(env: &dyn Environment, project: bool, name: &str) -> Result<Exit, Fault> {
    let program = this_program()?;
    let root = absolute(Path::new("."))?;
    let mut table = print::table(&["CLIENT", "FOUND", "INSTALLED", "FILE"]);
    for client in Client::ALL {
        let place = if project { client.project(&root) } else { client.place(env, System::here()) };
        let Some(place) = place else { continue };
        let target = Target { key: client.key(), name, program: &program };
        let found = if place.is_found() { "yes" } else { "no" };
        table.add_row([client.word(), found, installed(&place, target), &short(env, &place.file)]);
    }
    print::line(&table.trim_fmt());
    Ok(Exit::Fine)
}

fn installed(place: &Place, target: Target<'_>) -> &'static str {
    let seen = Original::read(&place.file).ok().map(|original| match original.text() {
        None => Some(None),
        Some(text) => edit::look(text, target).ok().map(|seen| seen.entry),
    });
    match seen.flatten() {
        None => "unreadable",
        Some(None) => "no",
        Some(Some(Whose::Ours)) => "yes",
        Some(Some(Whose::Another)) => "something else",
    }
}

/// A path with `~` for the home: few would fit into a line otherwise.
fn short(env: &dyn Environment, path: &Path) -> String {
    let home = directory(env, if cfg!(windows) { "USERPROFILE" } else { "HOME" });
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(below) => shown(&Path::new("~").join(below)),
        None => shown(path),
    }
}
