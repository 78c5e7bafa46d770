//! `bulkhead import`: the servers of another client's file, taken over into the configuration.

use std::path::{Path, PathBuf};

use crate::app::{Options, shown};
use crate::config::edit::Edit;
use crate::config::env::{Environment, WithState, config_path, state_dir};
use crate::config::file::{alone, read_trusted};
use crate::config::import::{Format, Found, Item, State, Taking};
use crate::error::{Class, Exit, Fault};
use crate::wire::text::visible;

use super::print;

mod report;

/// Larger files hold no servers: what other clients keep beside them may be large.
const LARGEST: u64 = 64 << 20;

/// What `bulkhead import` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The file of another client, or a server.json
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Whose file it is, where its form does not say so: claude-desktop, claude-code, cursor, vscode, windsurf, zed, cline,
    /// server-json
    #[arg(long, value_name = "FORMAT", value_parser = Format::parse)]
    from: Option<Format>,
    /// Only the server of that name; may be given more than once
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    showing: Showing,
}

/// How a report is shown, and whether anything is written.
#[derive(Debug, clap::Args)]
pub struct Showing {
    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Takes over what can be. What is refused leaves the others taken, and the exit code says that something was.
pub fn run(options: &Options, env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    let file = &arguments.file;
    let mut found = Found::read(file, read(file)?, arguments.from).map_err(usage)?;
    found.only(&arguments.only).map_err(|unknown| {
        Fault::new(Class::Unknown, format!("there is no server {:?} in {}", visible(&unknown, 80), shown(file)))
    })?;
    let form = found.form;
    writing(
        options,
        env,
        |edit, showing| {
            let items = Taking::into(edit).all(found);
            showing.finish(env, edit, Some((file, form)), &items)
        },
        &arguments.showing,
    )
}

/// Opens the configuration to write to, and hands it on.
pub(super) fn writing(
    options: &Options,
    env: &dyn Environment,
    take: impl FnOnce(&mut Edit<'_>, &Showing) -> Result<Exit, Fault>,
    showing: &Showing,
) -> Result<Exit, Fault> {
    let path = config_path(options.config.as_deref(), env);
    let state = state_dir(options.state.as_deref(), env);
    // From before it is read until it is written: two at once would each write what the other has not.
    let turn = (!showing.dry_run).then(|| alone(&state)).transpose();
    let _turn = turn.map_err(|error| Fault::new(Class::Usage, format!("{}: {error}", shown(&state))))?;
    let env = &WithState { env, state };
    let mut edit = Edit::open(&path, env).map_err(usage)?;
    take(&mut edit, showing)
}

fn usage(lines: String) -> Fault {
    Fault::new(Class::Usage, lines.lines().map(|line| visible(line, 1000)).collect::<Vec<_>>().join("\n"))
}

/// The bytes of the file. Who can write to it can name what is to run, so it is read like our own.
fn read(file: &Path) -> Result<Vec<u8>, Fault> {
    let shown = shown(file);
    if std::fs::metadata(file).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Err(Fault::new(Class::Usage, format!("{shown}: there is no such file")));
    }
    read_trusted(file, LARGEST).map_err(|why| Fault::new(Class::Usage, format!("{shown}: {why}")))
}

impl Showing {
    /// Writes what was taken, unless told otherwise, and shows what became of each.
    pub(super) fn finish(
        &self,
        env: &dyn Environment,
        edit: &Edit<'_>,
        source: Option<(&Path, &str)>,
        items: &[Item],
    ) -> Result<Exit, Fault> {
        let write = !self.dry_run && !edit.is_empty();
        if write {
            edit.save().map_err(usage)?;
        }
        let report = report::Report { edit, source, items, written: write, dry: self.dry_run };
        if self.json {
            print::line(&report.json()?);
        } else {
            report.lines(print::colours(env)).iter().for_each(|line| print::line(line));
        }
        let refused = items.iter().any(|item| item.state == State::Refused);
        Ok(if refused { Exit::Usage } else { Exit::Fine })
    }
}
