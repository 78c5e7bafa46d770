//! `bulkhead reap --images`: baked images and kept volumes, how many bytes they take, and the removal of those that no
//! lock refers to, once somebody has said yes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::app::locks::{self, Known, Sight};
use crate::app::{Options, control, shown as path_shown};
use crate::compartment::Engine;
use crate::compartment::reap::{Collected, Failed, Item, Kind, Rules, Stock, Thing, Wanted, collect, counted, stock};
use crate::config::env::{self, Environment, WithState, engine_candidates};
use crate::error::{Class, Exit, Fault};

use super::super::print;
use super::shown;

/// For how long nothing may have happened to what goes, where nobody says otherwise.
const OLDER_THAN: &str = "7d";

/// What `bulkhead reap --images` takes besides.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// With --images: remove volumes, too, of servers that are no more; they have people's data
    #[arg(long, requires = "images")]
    volumes: bool,
    /// With --images: only what was made, named or changed longer ago than this, such as 12h or 30d
    #[arg(long, requires = "images", value_name = "AGE", default_value = OLDER_THAN, value_parser = age)]
    older_than: Duration,
    /// With --images: forget a lock or configuration that is gone with its disk
    #[arg(long, requires = "images", value_name = "FILE")]
    forget: Vec<PathBuf>,
    /// With --images: remove without asking
    #[arg(long, requires = "images")]
    yes: bool,
    /// With --images: only list
    #[arg(long, requires = "images", conflicts_with = "yes")]
    dry_run: bool,
}

fn age(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|why| format!("{why}; write it as 12h or 30d"))
}

/// How many of a kind, and their bytes.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Sum {
    count: usize,
    bytes: u64,
    /// Whether the engine did not tell the bytes of some.
    incomplete: bool,
}

/// Everything, for scripts.
#[derive(Serialize)]
struct Report<'a> {
    locks: &'a [Known],
    unreferenced: &'a [Thing],
    kept: &'a [Thing],
    bytes: Value,
    #[serde(flatten)]
    collected: &'a Collected,
    forgotten: &'a [String],
}

/// Lists, asks, removes.
pub async fn run(options: &Options, env: &dyn Environment, arguments: &Arguments, json: bool) -> Result<Exit, Fault> {
    let state = env::state_dir(options.state.as_deref(), env);
    let forgotten = forgotten(&state, &arguments.forget)?;
    let rules = Rules { older_than: arguments.older_than, volumes: arguments.volumes };
    let engine = Engine::new(engine_candidates(env));
    let (found, known) = wanted(options, env, &forgotten).await?;
    let stock = stock(&engine, &found, &rules).await?;
    if !json {
        list(&stock, &known, &state).iter().for_each(|line| print::line(line));
    }
    let accepted = accepted(arguments, json, &stock);
    let (mut collected, mut dropped) = (Collected::default(), Vec::new());
    if let Ok(true) = accepted {
        let again = async || wanted(options, env, &forgotten).await.map(|(wanted, _)| wanted);
        collected = collect(&engine, stock.unreferenced.clone(), &rules, again).await;
        match drop_gone(&state, &known, &stock, &collected) {
            Ok(forgotten) => dropped = forgotten,
            Err(fault) => collected.failed.push(Failed { item: None, reason: fault.inward }),
        }
    }
    match json {
        true => tell(&known, &stock, &collected, &dropped)?,
        false => ended(&collected, &dropped).iter().for_each(|line| print::line(line)),
    }
    accepted?;
    for failed in &collected.failed {
        match &failed.item {
            Some(item) => tracing::error!("{} was not removed: {}", shown(item), shown(&failed.reason)),
            None => tracing::error!("not everything was forgotten: {}", shown(&failed.reason)),
        }
    }
    Ok(if collected.failed.is_empty() { Exit::Fine } else { Class::Engine.exit() })
}

/// One line for `bulkhead check`: how many there are, and what of it may go.
pub async fn summary(options: &Options, env: &dyn Environment, engine: &Engine) -> Result<String, Fault> {
    let older_than = age(OLDER_THAN).map_err(|why| Fault::new(Class::Bug, why))?;
    let (wanted, _) = wanted(options, env, &[]).await?;
    let stock = stock(engine, &wanted, &Rules { older_than, volumes: false }).await?;
    let of_images = |thing: &&Thing| thing.item.kind == Kind::Image;
    let all = sum(stock.kept.iter().chain(&stock.unreferenced).filter(of_images));
    let free = sum(stock.unreferenced.iter().filter(of_images));
    let mut says = format!("{} baked image{}, {}", all.count, if all.count == 1 { "" } else { "s" }, all.size());
    if free.count > 0 {
        says += &format!(", of which {} are referred to by no lock: bulkhead reap --images", free.size());
    }
    Ok(says)
}

/// What the locks say, and what gateways run with that have not read them since.
async fn wanted(
    options: &Options,
    env: &dyn Environment,
    forgotten: &[PathBuf],
) -> Result<(Wanted, Vec<Known>), Fault> {
    let state = env::state_dir(options.state.as_deref(), env);
    let config = env::config_path(options.config.as_deref(), env);
    let present = config.symlink_metadata().is_ok().then_some(config.as_path());
    let with_state = WithState { env, state: state.clone() };
    let (mut wanted, known) = locks::wanted(&state, &with_state, present, forgotten)?;
    for gateway in control::ask_all(&state).await {
        let who = format!("the gateway that runs as process {}", gateway["pid"]);
        for list in ["servers", "leaving"] {
            for server in gateway[list].as_array().into_iter().flatten() {
                if let Some(image) = server["image"].as_str() {
                    wanted.image(image, &who);
                }
            }
        }
    }
    Ok((wanted, known))
}

/// The paths to forget, each of which has to be known.
fn forgotten(state: &Path, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Fault> {
    let mut all = Vec::new();
    for path in paths {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        if !locks::knows(state, &path)? {
            let (path, state) = (path_shown(&path), path_shown(state));
            return Err(Fault::new(Class::Usage, format!("no lock or configuration \"{path}\" is known to {state}")));
        }
        all.push(path);
    }
    Ok(all)
}

/// Whether to remove; what there is was shown.
fn accepted(arguments: &Arguments, json: bool, stock: &Stock) -> Result<bool, Fault> {
    // What was to be forgotten is, though nothing else is to be done.
    if arguments.dry_run || (stock.unreferenced.is_empty() && arguments.forget.is_empty()) {
        return Ok(false);
    }
    if arguments.yes || stock.unreferenced.is_empty() {
        return Ok(true);
    }
    let question = format!("remove {}? [y/N] ", counted(items(&stock.unreferenced)));
    let answer = if json { None } else { print::ask(&question) };
    match answer.as_deref().map(str::trim) {
        Some("y" | "Y" | "yes") => Ok(true),
        None => {
            let text = "nobody to ask whether these are to be removed, so nothing was; say --yes";
            Err(Fault::new(Class::Usage, text))
        }
        Some(_) => Err(Fault::new(Class::Usage, "not accepted, so nothing was removed")),
    }
}

/// What a volume that stays was made for has to stay known.
fn drop_gone(state: &Path, known: &[Known], stock: &Stock, collected: &Collected) -> Result<Vec<String>, Fault> {
    let gone = |thing: &Thing| collected.removed.iter().any(|removed| removed.item.id == thing.item.id);
    let all = stock.kept.iter().chain(&stock.unreferenced).filter(|thing| !gone(thing));
    let scopes: Vec<&str> = all.filter_map(|thing| thing.scope.as_deref()).collect();
    locks::forget_gone(state, known, &|key| scopes.contains(&key))
}

fn items(things: &[Thing]) -> impl Iterator<Item = &Item> {
    things.iter().map(|thing| &thing.item)
}

fn sum<'a>(things: impl IntoIterator<Item = &'a Thing>) -> Sum {
    things.into_iter().fold(Sum::default(), |sum, thing| Sum {
        count: sum.count + 1,
        bytes: sum.bytes.saturating_add(thing.bytes.unwrap_or_default()),
        incomplete: sum.incomplete || thing.bytes.is_none(),
    })
}

impl Sum {
    fn of(things: &[Thing], kind: Kind) -> Self {
        sum(things.iter().filter(|thing| thing.item.kind == kind))
    }

    /// For people: `12.3 MB`, `at least 4 kB`.
    fn size(&self) -> String {
        if self.incomplete { format!("at least {}", size(self.bytes)) } else { size(self.bytes) }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..=999_000 => format!("{} kB", bytes.div_ceil(1_000)),
        // What would be rounded to a thousand of a unit is told in the next.
        999_001..999_950_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

// === what is shown ===

fn list(stock: &Stock, known: &[Known], state: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for (things, head) in [(&stock.kept, "STAYS"), (&stock.unreferenced, "MAY GO")] {
        if !things.is_empty() {
            lines.extend([table(things, head), String::new()]);
        }
    }
    for gone in known.iter().filter(|known| known.sight == Sight::Gone) {
        lines.push(format!("gone, or to be forgotten: {}", shown(&gone.lock)));
    }
    for (things, what) in [(&stock.kept, "stays"), (&stock.unreferenced, "may go")] {
        lines.push(format!("{what}: {}", both(things)));
    }
    let read = known.iter().filter(|known| known.sight == Sight::Read).count();
    let configurations = if read == 1 { "1 configuration" } else { &format!("{read} configurations") };
    lines.push(format!("looked at: {configurations} that were used with {}", path_shown(state)));
    lines
}

fn table(things: &[Thing], head: &str) -> String {
    let mut table = print::table(&[head, "BYTES", "SINCE", "NAME, AND WHY"]);
    for thing in things {
        let Item { kind, id, name } = &thing.item;
        let (what, name) = match kind {
            Kind::Volume => ("volume".to_owned(), id),
            _ => (shown(&format!("{:.12}", id.trim_start_matches("sha256:"))), name),
        };
        let since = thing.used.as_deref().map_or("?", |used| used.get(..10).unwrap_or(used)).to_owned();
        let why = format!("{}\n{}", shown(name), shown(&thing.reason));
        table.add_row([what, thing.bytes.map_or_else(|| "?".to_owned(), size), since, why]);
    }
    table.trim_fmt()
}

/// Images and volumes, each with their bytes.
fn both(things: &[Thing]) -> String {
    let sums = [Kind::Image, Kind::Volume].map(|kind| (kind, Sum::of(things, kind)));
    let words = sums.iter().filter(|(_, sum)| sum.count > 0).map(|(kind, sum)| {
        let plural = if sum.count == 1 { "" } else { "s" };
        format!("{} {kind}{plural}, {}", sum.count, sum.size())
    });
    let words: Vec<String> = words.collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join("; ") }
}

fn ended(collected: &Collected, forgotten: &[String]) -> Vec<String> {
    let left = collected.left.iter().map(|left| format!("left alone: {}: {}", shown(&left.item), shown(&left.reason)));
    let forgotten = forgotten.iter().map(|lock| format!("forgotten: {}", shown(lock)));
    let end = match collected.removed.is_empty() {
        true => "nothing was removed".to_owned(),
        false => format!("removed: {}", both(&collected.removed)),
    };
    left.chain(forgotten).chain([end]).collect()
}

fn tell(known: &[Known], stock: &Stock, collected: &Collected, forgotten: &[String]) -> Result<(), Fault> {
    let sums = |things: &[Thing]| serde_json::json!({ "images": Sum::of(things, Kind::Image), "volumes": Sum::of(things, Kind::Volume) });
    let Stock { unreferenced, kept } = stock;
    let bytes = serde_json::json!({
        "kept": sums(kept), "unreferenced": sums(unreferenced), "removed": sums(&collected.removed),
    });
    let json = serde_json::to_string(&Report { locks: known, unreferenced, kept, bytes, collected, forgotten });
    let json = json.map_err(|e| Fault::new(Class::Bug, format!("what was found cannot be written: {e}")))?;
    print::line(&print::harmless(&json));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1 kB"),
            (1_001, "2 kB"),
            (999_000, "999 kB"),
            (999_001, "1.0 MB"),
            (1_500_000, "1.5 MB"),
            (999_949_999, "999.9 MB"),
            (999_950_000, "1.0 GB"),
            (73_000_000_000, "73.0 GB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    fn thing(kind: Kind, bytes: Option<u64>) -> Thing {
        let item = Item { kind, id: "sha256:0123456789abcdef".into(), name: "n\u{1b}".into() };
        Thing { item, bytes, used: None, scope: None, reason: "\u{202e}why".into() }
    }

    #[test]
    fn what_is_not_told_makes_a_sum_the_least_it_can_be() {
        let things = [thing(Kind::Image, Some(1_500_000)), thing(Kind::Image, None), thing(Kind::Volume, Some(7))];
        assert_eq!(both(&things), "2 images, at least 1.5 MB; 1 volume, 7 B");
        assert_eq!(both(&[]), "nothing");
    }

    #[test]
    fn a_list_is_harmless_to_look_at_and_fits_in_eighty_columns() {
        let mut long = thing(Kind::Volume, Some(1));
        long.item.id = format!("bulkhead-state-{}-0123456789ab", "x".repeat(60));
        long.reason = "server with-a-long-name of /a/rather/long/path/to/some/bulkhead.toml is no more".into();
        let stock =
            Stock { kept: vec![thing(Kind::Image, Some(1)), long], unreferenced: vec![thing(Kind::Image, None)] };
        let lines = list(&stock, &[], Path::new("/s"));
        let hidden = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(lines.iter().all(|line| !line.contains(hidden)), "{lines:?}");
        let widest = lines.iter().flat_map(|text| text.lines()).map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{lines:?}");
    }
}
