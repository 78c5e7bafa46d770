//! `bulkhead reap`: what gateways that are gone left behind; with `--images`, what no lock refers to any more.

use crate::app::Options;
use crate::compartment::reap::{Reaped, counted};
use crate::compartment::{self, Engine, Owner};
use crate::config::env::{Environment, engine_candidates};
use crate::error::{Class, Exit, Fault};
use crate::wire::text::visible;

use super::print;

pub mod images;

/// Longest text of one item; names and labels are whatever somebody gave the engine.
const SHOWN: usize = 400;

/// What `bulkhead reap` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print what was removed and what was left alone as JSON
    #[arg(long)]
    json: bool,
    /// Instead of leftovers: list baked images and volumes, and remove what no lock refers to, after a question
    #[arg(long)]
    images: bool,
    #[command(flatten)]
    collection: images::Arguments,
}

/// Removes leftovers, and says what they were and what was left alone for which reason.
pub async fn run(options: &Options, env: &dyn Environment, arguments: &Arguments) -> Result<Exit, Fault> {
    if arguments.images {
        return images::run(options, env, &arguments.collection, arguments.json).await;
    }
    let engine = Engine::new(engine_candidates(env));
    let reaped = compartment::reap(&engine, &Owner::this_process("reap")).await?;
    if arguments.json {
        let json = serde_json::to_string(&reaped);
        let json = json.map_err(|e| Fault::new(Class::Bug, format!("what was reaped cannot be written: {e}")))?;
        print::line(&print::harmless(&json));
    } else {
        show(&reaped);
    }
    for failed in &reaped.failed {
        match &failed.item {
            Some(item) => tracing::error!("{} was not removed: {}", shown(item), shown(&failed.reason)),
            None => tracing::error!("not everything was looked for: {}", shown(&failed.reason)),
        }
    }
    Ok(if reaped.failed.is_empty() { Exit::Fine } else { Class::Engine.exit() })
}

fn show(reaped: &Reaped) {
    lines(reaped).iter().for_each(|line| print::line(line));
}

fn lines(reaped: &Reaped) -> Vec<String> {
    let removed = reaped.removed.iter().map(|item| format!("removed {}", shown(item)));
    let left = reaped.left.iter().map(|left| format!("left alone: {}: {}", shown(&left.item), shown(&left.reason)));
    let end = match reaped.removed.is_empty() {
        true if reaped.failed.is_empty() => "nothing was left behind".to_owned(),
        true => "nothing was removed".to_owned(),
        false => format!("removed in all: {}", counted(&reaped.removed)),
    };
    removed.chain(left).chain([end]).collect()
}

fn shown(text: &impl ToString) -> String {
    visible(&text.to_string(), SHOWN)
}

#[cfg(test)]
mod tests {
    use super::print::harmless;
    use super::*;
    use crate::compartment::reap::{Item, Kind, Left};

    #[test]
    fn what_labels_say_is_harmless_to_look_at() {
        let item = |name: &str| Item { kind: Kind::Container, id: "i\u{1b}".into(), name: name.into() };
        let nasty = "\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\n\u{e0041}x";
        let left = Left { item: item(nasty), reason: nasty.into() };
        let reaped = Reaped { removed: vec![item(nasty)], left: vec![left], failed: Vec::new() };
        let hidden = |c: char| c.is_control() || "\u{202e}\u{e0041}".contains(c);
        let lines = lines(&reaped);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| !line.contains(hidden)), "{lines:?}");
        assert!(lines[0].contains("\\u{1b}[2J\\u{9b}31m"), "{lines:?}");
        let plain = serde_json::to_string(&reaped).unwrap();
        let json = harmless(&plain);
        assert!(!json.contains(hidden), "{json}");
        let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).unwrap();
        assert_eq!(value(&json), value(&plain));
        assert_eq!(harmless(r#"{"a":"Grüße \\ 🦀"}"#), r#"{"a":"Grüße \\ 🦀"}"#);
    }
}
