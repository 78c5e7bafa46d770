//! `bulkhead install` and `bulkhead uninstall`: the one entry in a client's own configuration.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use crate::app::{Options, configuration, shown};
use crate::clients::edit::{self, Target};
use crate::clients::{Client, Entry, Original, Outcome, Place, Seen, System, Whose, Wrong};
use crate::config::env::{Environment, program, state_chosen, state_dir};
use crate::error::{Class, Exit, Fault};
use crate::name::{Role, ServerName};

use super::print;

mod diff;
mod list;

/// What `bulkhead install` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The client; without one, all are listed
    #[arg(value_parser = client(), value_name = "CLIENT")]
    client: Option<Client>,
    /// List the clients, their files, and where the entry is
    #[arg(long, conflicts_with_all = ["client", "file", "role", "create", "force", "dry_run"])]
    list: bool,
    #[command(flatten)]
    entry: Which,
    /// The role that the client's calls have, instead of the configured one
    #[arg(long, value_parser = super::role, value_name = "ROLE", requires = "client")]
    role: Option<Role>,
    /// Make the file even where the client was not found
    #[arg(long, requires = "client")]
    create: bool,
    /// Replace an entry of that name that starts something else
    #[arg(long, requires = "client")]
    force: bool,
    /// Show what would change, and change nothing
    #[arg(long, requires = "client")]
    dry_run: bool,
}

/// What `bulkhead uninstall` takes.
#[derive(Debug, clap::Args)]
pub struct Removal {
    /// The client
    #[arg(value_parser = client(), value_name = "CLIENT")]
    client: Client,
    #[command(flatten)]
    entry: Which,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Which entry of which file.
#[derive(Debug, clap::Args)]
struct Which {
    /// The configuration of the project in the working directory, instead of the user's
    #[arg(long, conflicts_with = "file")]
    project: bool,
    /// The client's configuration, where it is not in its usual place
    #[arg(long, value_name = "FILE", requires = "client")]
    file: Option<PathBuf>,
    /// The entry's name
    #[arg(long, value_name = "NAME", default_value = "bulkhead", value_parser = name)]
    name: String,
}

/// A client's file with what is to be done in it.
struct Work<'a> {
    client: Client,
    place: Place,
    original: Original,
    program: String,
    name: &'a str,
}

fn client() -> impl clap::builder::TypedValueParser<Value = Client> {
    PossibleValuesParser::new(Client::ALL.map(Client::word))
        .try_map(|word| Client::of(&word).ok_or_else(|| format!("no client {word:?}")))
}

fn name(text: &str) -> Result<String, String> {
    ServerName::parse(text).map(|name| name.as_str().to_owned()).map_err(|bad| bad.to_string())
}

/// Puts the entry in, or says that it is there.
pub fn run(options: &Options, env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    let Some(client) = arguments.client else { return list::run(env, arguments.entry.project, &arguments.entry.name) };
    let work = Work::open(env, client, &arguments.entry)?;
    let config = configured(options, env, &work)?;
    let entry = entry(options, env, client, &config, arguments.role, &work.program)?;
    let seen = work.look()?;
    if seen.entry == Some(Whose::Another) && !arguments.force {
        let text =
            "has an entry of that name that starts something else: choose another --name, or replace it with --force";
        return Err(refused(work.path(), &format!("{text} ({:?})", work.name)));
    }
    if work.original.text().is_none() && !arguments.create && !work.may_be_made() {
        let text = format!(
            "{} was not found: \"{}\" does not exist; where that is right, say --create to make \"{}\"",
            client.title(),
            shown(&work.place.folder),
            shown(work.path())
        );
        return Err(Fault::new(Class::Unknown, text));
    }
    let outcome = edit::install(work.text(), work.target(), &entry).map_err(|wrong| work.wrong(&wrong))?;
    let Outcome::Changed(text) = outcome else {
        print::line(&format!("already installed in {}", shown(work.path())));
        work.tell_others(&seen);
        return Ok(Exit::Fine);
    };
    work.check(&text, &entry)?;
    if arguments.dry_run {
        return diff::show(&work, &text, print::colours(env));
    }
    let backup = work.original.replace(&text).map_err(|why| refused(work.path(), &why))?;
    print::line(&format!("installed in {}", shown(work.path())));
    let line: Vec<_> = [&entry.command].into_iter().chain(&entry.args).map(|word| quoted(word)).collect();
    print::line(&format!("  {} starts {}", work.name, line.join(" ")));
    work.tell_backup(backup.as_deref());
    work.tell_others(&seen);
    print::line(&format!("restart {} to use it", client.title()));
    Ok(Exit::Fine)
}

/// Takes the entry out. Where there is none, that is said, and the exit code is that of something unknown.
pub fn remove(env: &dyn Environment, arguments: &Removal) -> Result<Exit, Fault> {
    let work = Work::open(env, arguments.client, &arguments.entry)?;
    let unknown = |what: String| Fault::new(Class::Unknown, format!("not installed: {what}"));
    let Some(text) = work.original.text() else {
        return Err(unknown(format!("\"{}\" does not exist", shown(work.path()))));
    };
    let seen = work.look()?;
    match seen.entry {
        Some(Whose::Ours) => {}
        Some(Whose::Another) => {
            let file = shown(work.path());
            return Err(unknown(format!("{:?} in \"{file}\" starts something else, so it was left alone", work.name)));
        }
        None => return Err(unknown(format!("\"{}\" has no entry {:?}", shown(work.path()), work.name))),
    }
    let before = work.original.backups().find(|before| edit::restore(text, before, work.target()));
    let text = match before {
        Some(before) => before,
        None => match edit::uninstall(text, work.target()).map_err(|wrong| work.wrong(&wrong))? {
            Outcome::Changed(text) => text,
            Outcome::Same => text.to_owned(),
        },
    };
    if edit::look(&text, work.target()).is_ok_and(|left| (left.started, left.reached) != (seen.started, seen.reached)) {
        return Err(bug());
    }
    if arguments.dry_run {
        return diff::show(&work, &text, print::colours(env));
    }
    let backup = work.original.replace(&text).map_err(|why| refused(work.path(), &why))?;
    print::line(&format!("taken out of {}", shown(work.path())));
    work.tell_backup(backup.as_deref());
    print::line(&format!("restart {} to end it there", work.client.title()));
    Ok(Exit::Fine)
}

/// The configuration that the client is to serve. One that is at fault would only fail where nobody sees it.
fn configured(options: &Options, env: &dyn Environment, work: &Work<'_>) -> Result<PathBuf, Fault> {
    let config = configuration(options, env)?.path;
    let same =
        |a: &Path, b: &Path| std::fs::canonicalize(a).is_ok_and(|a| std::fs::canonicalize(b).is_ok_and(|b| a == b));
    if same(&config, work.path()) {
        return Err(refused(work.path(), "is our own configuration, not the client's"));
    }
    absolute(&config)
}

/// What the client is told to start. A state directory that was chosen here must be chosen there, too: the client has
/// neither our flags nor our environment.
fn entry(
    options: &Options,
    env: &dyn Environment,
    client: Client,
    config: &Path,
    role: Option<Role>,
    program: &str,
) -> Result<Entry, Fault> {
    let mut args = vec!["--config".to_owned(), text(config)?];
    if state_chosen(options.state.as_deref(), env) {
        args.push("--state".to_owned());
        args.push(text(&absolute(&state_dir(options.state.as_deref(), env))?)?);
    }
    args.push("serve".to_owned());
    if let Some(role) = role {
        args.extend(["--role".to_owned(), role.to_string()]);
    }
    Ok(Entry { kind: client.kind().map(str::to_owned), command: program.to_owned(), args })
}

/// Where this program is, as a client can name it.
fn this_program() -> Result<String, Fault> {
    let unusable = |why: &str| Fault::new(Class::Usage, format!("this program cannot be named in an entry: {why}"));
    let path = program().map_err(|error| unusable(&error.to_string()))?;
    if !path.is_file() {
        return Err(unusable(&format!("\"{}\" is no file any more", shown(&path))));
    }
    text(&path)
}

fn absolute(path: &Path) -> Result<PathBuf, Fault> {
    std::path::absolute(path).map_err(|error| refused(path, &format!("cannot be named: {error}")))
}

/// A path as JSON can hold it.
fn text(path: &Path) -> Result<String, Fault> {
    path.to_str().map(str::to_owned).ok_or_else(|| refused(path, "cannot be named in an entry: it is not UTF-8"))
}

/// A word as a shell takes it: `Application Support` is in the way to many a file.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/\\:._-+@%=,~".contains(c);
    match word {
        _ if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        _ if cfg!(windows) => format!("\"{word}\""),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn refused(path: &Path, why: &str) -> Fault {
    Fault::new(Class::Usage, format!("\"{}\" {why}", shown(path)))
}

fn bug() -> Fault {
    Fault::new(Class::Bug, "the edit did not come out as it was meant, so nothing was written")
}

/// Where a client's configuration is.
fn place(env: &dyn Environment, client: Client, which: &Which) -> Result<Place, Fault> {
    let usage = |text: String| Fault::new(Class::Usage, text);
    if let Some(file) = &which.file {
        let file = absolute(file)?;
        let folder = file.parent().unwrap_or(&file).to_owned();
        return Ok(Place { file, folder });
    }
    if which.project {
        let title = client.title();
        return client
            .project(&absolute(Path::new("."))?)
            .ok_or_else(|| usage(format!("{title} has no configuration of a project")));
    }
    client.place(env, System::here()).ok_or_else(|| {
        usage(format!(
            "where {} keeps its configuration is unknown without a home: name it with --file",
            client.title()
        ))
    })
}

// === impl Work ===

impl<'a> Work<'a> {
    fn open(env: &dyn Environment, client: Client, which: &'a Which) -> Result<Self, Fault> {
        let place = place(env, client, which)?;
        let original = Original::read(&place.file).map_err(|why| refused(&place.file, &why))?;
        Ok(Work { client, place, original, program: this_program()?, name: &which.name })
    }

    fn path(&self) -> &Path {
        self.original.path()
    }

    fn text(&self) -> &str {
        self.original.text().unwrap_or_default()
    }

    fn target(&self) -> Target<'_> {
        Target { key: self.client.key(), name: self.name, program: &self.program }
    }

    fn look(&self) -> Result<Seen, Fault> {
        edit::look(self.text(), self.target()).map_err(|wrong| self.wrong(&wrong))
    }

    fn wrong(&self, wrong: &Wrong) -> Fault {
        let (file, at) = (shown(self.path()), wrong.at);
        Fault::new(Class::Usage, format!("{file}:{}:{}: {}, so it was left as it is", at.line, at.column, wrong.what))
    }

    /// Whether the client is there, so that a file that is not is only not written yet.
    fn may_be_made(&self) -> bool {
        self.place.folder.is_dir()
    }

    /// What is written must be read as it was meant, whatever the file looked like.
    fn check(&self, text: &str, entry: &Entry) -> Result<(), Fault> {
        let again = edit::install(text, self.target(), entry);
        if again == Ok(Outcome::Same) { Ok(()) } else { Err(bug()) }
    }

    fn tell_backup(&self, backup: Option<&Path>) {
        if let Some(backup) = backup {
            print::line(&format!("backup: {}", shown(backup)));
        }
    }

    /// What the client still does without us.
    fn tell_others(&self, seen: &Seen) {
        let title = self.client.title();
        match seen.started {
            0 => {}
            1 => print::line(&format!("1 other server is still started by {title} itself, unconfined:")),
            n => print::line(&format!("{n} other servers are still started by {title} itself, unconfined:")),
        }
        if seen.started > 0 {
            print::line(&format!("  bulkhead import {}", quoted(&shown(self.path()))));
        }
        match seen.reached {
            0 => {}
            1 => print::line(&format!("1 server at an address is still reached by {title} itself")),
            n => print::line(&format!("{n} servers at addresses are still reached by {title} itself")),
        }
    }
}

#[cfg(all(test, not(windows)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_typed_can_be_pasted() {
        for (word, expected) in [
            ("/h/.config/a-b_c.json", "/h/.config/a-b_c.json"),
            ("/h/Application Support/x", "'/h/Application Support/x'"),
            ("it's $HOME", r"'it'\''s $HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
