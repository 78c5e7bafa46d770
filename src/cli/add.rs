//! `bulkhead add`: one server, written into the configuration by the same way as those of other clients' files.

use crate::app::Options;
use crate::config::env::Environment;
use crate::config::file::{Table, Value};
use crate::config::import::Taking;
use crate::error::{Class, Exit, Fault};
use crate::name::Role;

use super::import::{Showing, writing};
use super::role;

/// What `bulkhead add` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The server's name
    #[arg(value_name = "NAME")]
    name: String,
    /// A package: npx:NAME[@VERSION] or uvx:NAME[@VERSION]
    #[arg(value_name = "PACKAGE")]
    package: Option<String>,
    /// An image that the engine has
    #[arg(long, value_name = "IMAGE", conflicts_with = "package")]
    image: Option<String>,
    /// A remote server
    #[arg(long, value_name = "URL", conflicts_with_all = ["package", "image"])]
    url: Option<String>,
    /// An argument of the server; may be given more than once
    #[arg(long = "arg", value_name = "ARG", allow_hyphen_values = true, conflicts_with = "command")]
    args: Vec<String>,
    /// A variable of the server; may be given more than once
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// A secret variable of the server, from env:NAME or file:/PATH; may be given more than once
    #[arg(long, value_name = "NAME=SOURCE", value_parser = pair)]
    secret: Vec<(String, String)>,
    /// What the server may reach; may be given more than once
    #[arg(long, value_name = "HOST:PORT")]
    egress: Vec<String>,
    /// The least role that sees it
    #[arg(long, value_name = "ROLE", value_parser = role)]
    min_role: Option<Role>,
    #[command(flatten)]
    showing: Showing,
    /// A command as other clients have it (npx …, uvx …, docker run …), or what runs in the image
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["package", "url"])]
    command: Vec<String>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("must be a name, \"=\" and what it is")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Adds the server, or says why not.
pub fn run(options: &Options, env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    let ways = [arguments.package.is_some(), arguments.image.is_some(), arguments.url.is_some()];
    if !ways.contains(&true) && arguments.command.is_empty() {
        let text = "say how it runs: a package (npx:NAME or uvx:NAME), --image, --url, or a command after \"--\"";
        return Err(Fault::new(Class::Usage, text));
    }
    let entry = entry(arguments)?;
    writing(
        options,
        env,
        |edit, showing| {
            let item = Taking::into(edit).given(&arguments.name, entry);
            showing.finish(env, edit, None, &[item])
        },
        &arguments.showing,
    )
}

/// The entry as another client would have it, with all that is ours in its `bulkhead` table.
fn entry(arguments: &Arguments) -> Result<Table, Fault> {
    let text = |text: &str| Value::String(text.to_owned());
    let list = |texts: &[String]| Value::texts(texts.iter().cloned());
    let (mut outer, mut inner) = (Table::default(), Table::default());
    if let Some((command, args)) = arguments.command.split_first() {
        outer.put("command", text(command));
        outer.put("args", list(args));
    }
    for (key, given) in [("package", &arguments.package), ("image", &arguments.image)] {
        given.iter().for_each(|given| inner.put(key, text(given)));
    }
    arguments.url.iter().for_each(|url| outer.put("url", text(url)));
    for (key, texts) in [("args", &arguments.args), ("egress", &arguments.egress)] {
        if !texts.is_empty() {
            inner.put(key, list(texts));
        }
    }
    for (key, pairs) in [("env", &arguments.env), ("secrets", &arguments.secret)] {
        let mut table = Table::default();
        for (name, value) in pairs {
            if table.get(name).is_some() {
                return Err(Fault::new(Class::Usage, format!("{name:?} is given twice")));
            }
            table.put(name, text(value));
        }
        if !table.entries.is_empty() {
            inner.put(key, Value::Table(table));
        }
    }
    arguments.min_role.iter().for_each(|role| inner.put("min_role", text(role.as_str())));
    outer.put("bulkhead", Value::Table(inner));
    Ok(outer)
}
