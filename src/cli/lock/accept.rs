//! What a person is shown of servers that are not as they were, and the question whether that is accepted. Starts nothing
//! and writes no lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::app::{Options, redactor};
use crate::audit::{Audit, ServerEvent, ServerWord};
use crate::config::env::{self, Environment};
use crate::config::{Config, Names};
use crate::error::{Class, Exit, Fault};
use crate::name::{ExposedName, ServerName};
use crate::route::lock::{Lock, LockedServer};
use crate::route::review::{Review, State};
use crate::route::scan::{Other, scan};
use crate::wire::text::visible;

use super::super::print;
use super::super::review::{Look, render};

/// What servers were, and what they are now.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    /// As it was approved.
    pub before: &'a Lock,
    /// As it was found.
    pub now: &'a BTreeMap<String, LockedServer>,
    /// How clients see tools.
    pub names: Names,
    /// How somebody is asked.
    pub asking: Asking,
}

/// How somebody is asked.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Asking {
    /// Accept without asking
    #[arg(long)]
    pub yes: bool,
    /// Show all of every difference
    #[arg(long)]
    pub full: bool,
}

/// The names of the servers that were accepted.
#[derive(Debug)]
pub struct Accepted(pub BTreeSet<String>);

impl Offered<'_> {
    /// Whether there is nothing to accept.
    pub fn is_unchanged(&self) -> bool {
        self.now.iter().all(|(name, now)| self.before.servers.get(name) == Some(now))
    }

    /// Shows what is not as it was, all of it where somebody is to be asked, and what is worth a second look.
    pub fn show(&self, env: &dyn Environment) {
        let Asking { yes, full } = self.asking;
        let look = Look { width: print::width(), colours: print::colours(env), full };
        let others = self.others();
        for (name, now) in self.now {
            let review = Review::of(self.before.servers.get(name), now);
            let foreign = others.iter().filter(|(server, ..)| server != name);
            let foreign: Vec<Other<'_>> =
                foreign.map(|(server, tool, exposed)| Other { server, tool, exposed }).collect();
            let news = if review.is_unchanged() { Vec::new() } else { scan(name, now, &foreign) };
            // Who has said yes beforehand reads what has changed, if anything, and not all that is new.
            let brief = yes && !full && review.state != State::Changed;
            let shown = if brief { review.brief() } else { review };
            print::text(&render(name, &shown, &news, &look));
        }
    }

    /// The tools of all servers: the server, its own name for the tool, the name that clients see.
    fn others(&self) -> Vec<(&str, &str, String)> {
        let before = self.before.servers.iter().filter(|(name, _)| !self.now.contains_key(*name));
        let all = before.chain(self.now);
        let tools = all.flat_map(|(name, server)| server.tools.iter().map(move |tool| (name, tool)));
        let seen = tools.map(|(name, tool)| {
            let exposed = match (self.names, ServerName::parse(name)) {
                (Names::Prefixed, Ok(server)) => ExposedName::prefixed(&server, &tool.name),
                _ => ExposedName::bare(&tool.name),
            };
            (name.as_str(), tool.name.as_str(), exposed.to_string())
        });
        seen.collect()
    }

    /// Asks which of them are accepted: all, none, or those named.
    pub fn ask(&self, what: &str) -> Result<Accepted, Fault> {
        let all = || self.now.keys().cloned().collect();
        if self.asking.yes {
            return Ok(Accepted(all()));
        }
        let refuse = |text: &str| Err(Fault::new(Class::Usage, text));
        let question = format!("accept this and {what}? [y = all, N = nothing, or names of servers] ");
        loop {
            let Some(answer) = print::ask(&question) else {
                return refuse("nobody to ask whether this is accepted, so nothing was written; say --yes");
            };
            let words: BTreeSet<String> =
                answer.split([' ', ',', '\t', '\n', '\r']).filter(|w| !w.is_empty()).map(str::to_owned).collect();
            match words.first().map(String::as_str) {
                Some("y" | "Y" | "yes" | "all") if words.len() == 1 => return Ok(Accepted(all())),
                None | Some("n" | "N" | "no") => return refuse("not accepted, so nothing was written"),
                Some(_) => match words.iter().find(|word| !self.now.contains_key(*word)) {
                    None => return Ok(Accepted(words)),
                    Some(unknown) => tracing::warn!("there is no server {:?} among them", visible(unknown, 60)),
                },
            }
        }
    }

    /// Records what was approved, before it counts.
    pub async fn record(
        &self,
        options: &Options,
        env: &dyn Environment,
        config: &Config,
        names: &BTreeSet<String>,
    ) -> Result<(), Fault> {
        let state = env::state_dir(options.state.as_deref(), env);
        let redactor = redactor(config)?;
        let gateway = uuid::Uuid::now_v7().simple().to_string();
        let audit = Audit::open(&state.join(&config.audit.path), config.audit.sync, gateway, Arc::new(redactor))?;
        for name in names {
            let Some(now) = self.now.get(name) else { continue };
            let review = Review::of(self.before.servers.get(name), now);
            if review.is_unchanged() {
                continue;
            }
            let reason = review.summary();
            let (image, server) = (now.image.clone(), name.clone());
            let event = ServerWord::Approved;
            let event = ServerEvent { server, event, container: None, image, evidence: None, reason: Some(reason) };
            audit.server(event).await?;
        }
        audit.close().await
    }
}

/// Names the servers of which something failed, and says with which code that ends.
pub fn tell_failed(failed: &BTreeMap<String, Fault>, what: &str) -> Exit {
    for (name, fault) in failed {
        tracing::error!("{name} is {what}: {}", fault.inward);
    }
    failed.values().next().map_or(Exit::Fine, |first| first.class.exit())
}
