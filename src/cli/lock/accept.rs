//! What a person is shown of servers that are not as they were, and the question whether that is accepted. Starts nothing
//! and writes no lock.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;

use crate::app::Options;
use crate::audit::{Audit, Redactor, ServerEvent, ServerWord};
use crate::config::Config;
use crate::config::env::{self, Environment};
use crate::error::{Class, Fault};
use crate::route::lock::{Lock, LockedServer};
use crate::wire::text::visible;

use super::super::print;

/// What servers were, and what they are now.
#[derive(Clone, Copy, Debug)]
pub struct Offered<'a> {
    /// As it was approved.
    pub before: &'a Lock,
    /// As it was found.
    pub now: &'a BTreeMap<String, LockedServer>,
    /// Whether nothing of a difference is left out.
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

    /// Shows what is not as it was.
    pub fn show(&self, _env: &dyn Environment) {
        let mut table = print::table(&["SERVER", "WHAT", "TOOLS", "NEWS"]);
        for (name, server) in self.now {
            let what = match (&server.package, &server.version, &server.image) {
                (Some(package), Some(version), _) => format!("{package} {version}"),
                (_, _, Some(image)) => format!("image {:.19}", image),
                _ => server.kind.clone(),
            };
            let news = match self.before.servers.get(name) {
                None => "new".to_owned(),
                Some(before) => news(before, server),
            };
            table.add_row([name.clone(), what, server.tools.len().to_string(), news]);
        }
        print::line(&table.trim_fmt());
    }

    /// Asks which of them are accepted: all, none, or those named.
    pub fn ask(&self, yes: bool, what: &str) -> Result<Accepted, Fault> {
        let all = || self.now.keys().cloned().collect();
        if yes {
            return Ok(Accepted(all()));
        }
        let refuse = |text: &str| Err(Fault::new(Class::Usage, text));
        if !std::io::stdin().is_terminal() {
            return refuse("nobody to ask whether this is accepted, so nothing was written; say --yes");
        }
        loop {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "accept this and {what}? [y = all, N = nothing, or names of servers] ")
                .and_then(|()| err.flush());
            let mut answer = String::new();
            if std::io::stdin().read_line(&mut answer).is_err() || answer.is_empty() {
                return refuse("not accepted, so nothing was written");
            }
            let words: BTreeSet<String> =
                answer.split([' ', ',', '\t', '\n', '\r']).filter(|w| !w.is_empty()).map(str::to_owned).collect();
            match words.first().map(String::as_str) {
                Some("y" | "Y" | "yes" | "all") if words.len() == 1 => return Ok(Accepted(all())),
                None | Some("n" | "N" | "no") => return refuse("not accepted, so nothing was written"),
                Some(_) => match words.iter().find(|word| !self.now.contains_key(*word)) {
                    None => return Ok(Accepted(words)),
                    Some(unknown) => drop(writeln!(err, "there is no server {:?} among them", visible(unknown, 60))),
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
        let secrets: Vec<_> = config.servers.iter().flat_map(|s| s.env.values().cloned()).collect();
        let redactor = Redactor::new(&secrets)
            .map_err(|e| Fault::new(Class::Usage, format!("the secrets are too large to be kept out of texts: {e}")))?;
        let gateway = uuid::Uuid::now_v7().simple().to_string();
        let audit = Audit::open(&state.join(&config.audit.path), config.audit.sync, gateway, Arc::new(redactor))?;
        for name in names {
            let Some(now) = self.now.get(name) else { continue };
            let reason = match self.before.servers.get(name) {
                None => "new".to_owned(),
                Some(before) if before == now => continue,
                Some(before) => news(before, now),
            };
            let (image, server) = (now.image.clone(), name.clone());
            let event = ServerWord::Approved;
            let event = ServerEvent { server, event, container: None, image, evidence: None, reason: Some(reason) };
            audit.server(event).await?;
        }
        audit.close().await
    }
}

/// What is not as it was, in a few words.
fn news(before: &LockedServer, now: &LockedServer) -> String {
    let mut words = Vec::new();
    if before.version != now.version {
        let version = |v: &Option<String>| v.clone().unwrap_or_else(|| "?".into());
        words.push(format!("{} -> {}", version(&before.version), version(&now.version)));
    } else if before.image != now.image {
        words.push("another image".into());
    }
    if before.config != now.config {
        words.push("its configuration".into());
    }
    let hash = |server: &LockedServer, name: &str| server.tools.iter().find(|t| t.name == name).map(|t| t.hash.clone());
    for tool in &now.tools {
        match hash(before, &tool.name) {
            None => words.push(format!("+{}", visible(&tool.name, 60))),
            Some(old) if old != tool.hash => words.push(format!("~{}", visible(&tool.name, 60))),
            Some(_) => {}
        }
    }
    words.extend(
        before.tools.iter().filter(|t| hash(now, &t.name).is_none()).map(|t| format!("-{}", visible(&t.name, 60))),
    );
    if words.is_empty() { "unchanged".into() } else { words.join(" ") }
}
