//! `bulkhead tools`: what a role sees.

use comfy_table::ColumnConstraint;

use crate::app::{App, Options};
use crate::config::env::Environment;
use crate::downstream::pool::State;
use crate::error::{Exit, Fault};
use crate::flow::Caller;
use crate::name::Role;
use crate::wire::Object;
use crate::wire::text::visible;

use super::print;

/// What `bulkhead tools` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The role to look as, instead of the configured one
    #[arg(long, value_parser = super::role, value_name = "ROLE")]
    role: Option<Role>,
    /// Print the definitions as a JSON array
    #[arg(long)]
    json: bool,
}

/// Lists the tools of every server, of those that are not locked too.
pub async fn run(options: Options, env: &dyn Environment, arguments: Arguments) -> Result<Exit, Fault> {
    let app = App::open(&Options { role: arguments.role, ..options }, env).await?;
    let caller = app.caller("cli");
    let gateway = &app.gateway;
    gateway.learn(&caller);
    let patience = app.config().servers.iter().map(|s| s.start_timeout).max().unwrap_or_default();
    gateway.learned(&caller, patience).await;
    show(&app, &caller, arguments.json);
    app.close().await?;
    Ok(Exit::Fine)
}

fn show(app: &App, caller: &Caller, json: bool) {
    let gateway = &app.gateway;
    let now = gateway.now();
    let tools = now.visible(caller);
    if json {
        let all: Vec<&str> = tools.iter().map(|t| t.shown.as_ref()).collect();
        print::line(&format!("[{}]", all.join(",\n")));
        return;
    }
    let mut table = print::table(&["TOOL", "DESCRIPTION"]);
    for tool in &tools {
        let description = Object::parse(&tool.shown).ok().and_then(|o| o.string("description")).unwrap_or_default();
        let first = description.trim().lines().next().unwrap_or_default();
        table.add_row([tool.exposed.as_str(), &visible(first, 100)]);
    }
    // A name that is broken over two lines cannot be copied.
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    print::line(&table.trim_fmt());
    for entry in now.roster.entries.iter().filter(|entry| now.may_know(caller, entry)) {
        let (state, reason) = gateway.pool.state(entry);
        let name = &entry.server.name;
        if entry.listing().is_none() {
            let state = state.word();
            tracing::warn!("server {name} is {state} and has no tools to show: {}", reason.unwrap_or_default());
        } else if state == State::Changed {
            tracing::warn!("server {name} has changed: {}", reason.unwrap_or_default());
        }
    }
}
