//! What runs and how it is confined, held against what was approved. Knows nothing of definitions.

use std::collections::BTreeSet;

use crate::route::lock::LockedServer;
use crate::text::exact;

/// One thing that is known of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What it is: `version`, `image`, or a setting's name.
    pub what: String,
    /// What it was, if there was anything.
    pub before: Option<String>,
    /// What it is, if there is anything.
    pub now: Option<String>,
    /// What it means.
    pub weight: Weight,
    /// More on that, where there is more to say.
    pub note: Option<&'static str>,
}

/// What a difference means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// A difference like any other.
    Plain,
    /// The server may more than before.
    Wider,
    /// It should not happen when nobody has done wrong.
    Alarm,
}

const REPLACED: &str =
    "the version is the same, but what the registry has under it is not: it was published anew or tampered with";
const UNHASHED: &str = "the version is the same, but there is no hash of it any more";
const OTHER_IMAGE: &str = "the same reference stands for another image than before";
const OTHER_CONTENT: &str = "other files, although version and dependencies are the same";
const ON_HOST: &str = "it runs on the host, where nothing confines it";
const OTHERWISE: &str = "something of its entry differs that no setting here shows";

/// Everything that differs; everything there is where nothing was before.
pub(super) fn facts(before: Option<&LockedServer>, now: &LockedServer) -> Vec<Fact> {
    let mut found = Vec::new();
    let mut put = |what: &str, of: fn(&LockedServer) -> Option<&String>| {
        let (was, is) = (before.and_then(of), of(now));
        if was != is {
            let (weight, note) = before.map_or((Weight::Plain, None), |before| judge(what, before, now));
            let text = |text: Option<&String>| text.map(|text| exact(text));
            found.push(Fact { what: what.to_owned(), before: text(was), now: text(is), weight, note });
        }
    };
    put("kind", |s| Some(&s.kind));
    put("package", |s| s.package.as_ref());
    put("version", |s| s.version.as_ref());
    put("integrity", |s| s.integrity.as_ref());
    put("image", |s| s.image.as_ref());
    put("content", |s| s.content.as_ref());
    put("revision", |s| Some(&s.revision));
    let settings = settings(before, now);
    // The digest says nothing to people, except that something differs which nothing else tells.
    if let Some(before) = before.filter(|before| before.config != now.config && settings.is_empty()) {
        let text = |server: &LockedServer| Some(exact(&server.config));
        let what = "configuration".to_owned();
        found.push(Fact { what, before: text(before), now: text(now), weight: Weight::Plain, note: Some(OTHERWISE) });
    }
    found.extend(settings);
    found
}

fn judge(what: &str, before: &LockedServer, now: &LockedServer) -> (Weight, Option<&'static str>) {
    let same_package = before.package == now.package && before.version == now.version && now.version.is_some();
    let plain = (Weight::Plain, None);
    match what {
        "kind" if now.kind == "unisolated" => (Weight::Wider, Some(ON_HOST)),
        "integrity" if same_package && before.integrity.is_some() => match now.integrity {
            Some(_) => (Weight::Alarm, Some(REPLACED)),
            None => (Weight::Alarm, Some(UNHASHED)),
        },
        "image" if now.kind == "image" && before.settings.get("reference") == now.settings.get("reference") => {
            (Weight::Plain, Some(OTHER_IMAGE))
        }
        "content" if same_package && before.content.is_some() && before.integrity == now.integrity => {
            let tree = |server: &LockedServer| server.tree.iter().map(|p| p.get().to_owned()).collect::<Vec<_>>();
            if tree(before) == tree(now) { (Weight::Alarm, Some(OTHER_CONTENT)) } else { plain }
        }
        _ => plain,
    }
}

fn settings(before: Option<&LockedServer>, now: &LockedServer) -> Vec<Fact> {
    let keys: BTreeSet<&String> =
        before.into_iter().flat_map(|b| b.settings.keys()).chain(now.settings.keys()).collect();
    let mut found = Vec::new();
    for key in keys {
        let (was, is) = (before.and_then(|b| b.settings.get(key)), now.settings.get(key));
        if was == is {
            continue;
        }
        let wider = before.is_some() && widens(key, was.map(String::as_str), is.map(String::as_str));
        let text = |text: Option<&String>| text.map(|text| exact(text));
        found.push(Fact {
            what: exact(key),
            before: text(was),
            now: text(is),
            weight: if wider { Weight::Wider } else { Weight::Plain },
            note: None,
        });
    }
    found
}

/// Whether a setting lets a server do more, as far as that can be told from its words.
fn widens(key: &str, was: Option<&str>, is: Option<&str>) -> bool {
    let Some(is) = is else {
        // No limit where there was one.
        return matches!(key, "memory" | "cpus" | "pids") && was.is_some();
    };
    match key {
        "network" => match (was.unwrap_or("none"), is) {
            (_, "none") | ("bridge", _) => false,
            (_, "bridge") | ("none", _) => true,
            (was, is) => entries(is).any(|entry| !entries(was).any(|old| old == entry)),
        },
        "mounts" => {
            let old: Vec<&str> = entries(was.unwrap_or_default()).collect();
            let was_written = |entry: &str| old.contains(&entry.replace(" (read)", " (written to)").as_str());
            entries(is).any(|entry| !old.contains(&entry) && !was_written(entry))
        }
        "memory" | "cpus" | "pids" => match (was.and_then(quantity), quantity(is)) {
            (Some(was), Some(is)) => is > was,
            _ => false,
        },
        "share" => {
            let rank = |word| ["principal", "session", "all"].iter().position(|w| *w == word);
            // A session's own is narrower than a principal's.
            let order = |word| rank(word).map(|n| [1, 0, 2][n]);
            matches!((order(was.unwrap_or("principal")), order(is)), (Some(was), Some(is)) if is > was)
        }
        "writable_root" | "cache" => is == "true" && was != Some("true"),
        "unisolated" => was.is_none(),
        "state" => was.is_none(),
        _ => false,
    }
}

fn entries(text: &str) -> impl Iterator<Item = &str> {
    text.split(", ").filter(|entry| !entry.is_empty())
}

/// A number with a unit of bytes, or without.
fn quantity(text: &str) -> Option<f64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k') => (&text[..at], 10),
        (at, 'm') => (&text[..at], 20),
        (at, 'g') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<f64>().ok().map(|number| number * f64::from(1u32 << unit))
}
