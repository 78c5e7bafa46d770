//! Baked images and kept volumes as one list: what stays and why, what may go, how many bytes either has; and the removal
//! of what may go, each thing looked at once more right before. Knows no lock; it is told what is wanted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::error::Fault;

use super::super::Engine;
use super::remove::Gone;
use super::usage::{Usage, usage};
use super::verdict::{Item, Kind};
use super::wanted::Wanted;
use super::{Failed, Left, images, volumes};

/// When something may go that nothing refers to.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// For how long it must not have been made, named or changed: another state directory at the engine may be about to
    /// refer to it.
    pub older_than: Duration,
    /// Whether volumes may go, too.
    pub volumes: bool,
}

impl Rules {
    /// Why something stays that was made or used then, if that is too short ago, or not told.
    pub(super) fn too_young(&self, since: Option<SystemTime>) -> Option<String> {
        let Some(since) = since else { return Some("the engine does not tell its age".to_owned()) };
        // A clock that is ahead of ours makes it younger, never older.
        let age = since.elapsed().unwrap_or_default();
        (age < self.older_than).then(|| {
            let limit = humantime::format_duration(self.older_than);
            format!("nothing refers to it, but it was made or used less than {limit} ago")
        })
    }
}

/// An image or a volume.
#[derive(Clone, Debug, Serialize)]
pub struct Thing {
    /// What it is.
    #[serde(flatten)]
    pub item: Item,
    /// Bytes that nothing else has; none where the engine does not tell.
    pub bytes: Option<u64>,
    /// When it was last made, named or changed, RFC 3339, as far as the engine tells.
    pub used: Option<String>,
    /// The configuration that a volume was made for, as [`super::scope_key`] shortens it.
    #[serde(skip)]
    pub scope: Option<String>,
    /// Why it stays, or what it was for.
    pub reason: String,
}

/// What there is.
#[derive(Debug, Default, Serialize)]
pub struct Stock {
    /// What may go.
    pub unreferenced: Vec<Thing>,
    /// What stays.
    pub kept: Vec<Thing>,
}

/// What became of a collection.
#[derive(Debug, Default, Serialize)]
pub struct Collected {
    /// What is gone.
    pub removed: Vec<Thing>,
    /// What is needed after all.
    pub left: Vec<Left>,
    /// What could not be done; the rest was.
    pub failed: Vec<Failed>,
}

/// Looks at every baked image and every kept volume. Changes nothing.
pub async fn stock(engine: &Engine, wanted: &Wanted, rules: &Rules) -> Result<Stock, Fault> {
    let usage = usage(engine).await;
    let mut stock = Stock::default();
    for image in images::look(engine, wanted, None).await? {
        let why = "no lock refers to it".to_owned();
        let thing = thing(&image.item, image.since, &usage, why);
        stock.put(thing, image.stays(rules));
    }
    for volume in volumes::look(engine, wanted, None).await? {
        let why = format!("{} is no more", volume.of.as_deref().unwrap_or("its server"));
        let stays = volume.stays(rules);
        let data = || format!("{why}; it is data: to remove it, say --volumes, too");
        let stays = stays.or_else(|| (!rules.volumes).then(data));
        let thing = Thing { scope: volume.scope.clone(), ..thing(&volume.item, volume.since, &usage, why) };
        stock.put(thing, stays);
    }
    Ok(stock)
}

impl Stock {
    fn put(&mut self, thing: Thing, stays: Option<String>) {
        match stays {
            Some(reason) => self.kept.push(Thing { reason, ..thing }),
            None => self.unreferenced.push(thing),
        }
    }
}

fn thing(item: &Item, since: Option<SystemTime>, usage: &Usage, reason: String) -> Thing {
    let bytes = match item.kind {
        Kind::Volume => usage.volumes.get(&item.id),
        _ => usage.images.get(&item.id),
    };
    let used = since.map(|since| humantime::format_rfc3339_seconds(since).to_string());
    Thing { item: item.clone(), bytes: bytes.copied(), used, scope: None, reason }
}

/// Removes what was found to be unreferenced, as far as it still is: `wanted` is asked anew before each. Where that fails
/// nothing more is removed.
pub async fn collect(
    engine: &Engine,
    things: Vec<Thing>,
    rules: &Rules,
    wanted: impl AsyncFn() -> Result<Wanted, Fault>,
) -> Collected {
    let mut collected = Collected::default();
    for thing in things {
        let outcome = match wanted().await {
            Ok(wanted) => one(engine, &thing.item, rules, &wanted).await,
            Err(fault) => Err(fault),
        };
        let item = thing.item.clone();
        match outcome {
            Ok(None) => collected.removed.push(thing),
            Ok(Some(reason)) => collected.left.push(Left { item, reason }),
            Err(fault) => collected.failed.push(Failed { item: Some(item), reason: fault.inward }),
        }
    }
    collected
}

/// Removes one thing, or tells why it stays.
async fn one(engine: &Engine, item: &Item, rules: &Rules, wanted: &Wanted) -> Result<Option<String>, Fault> {
    let gone = match item.kind {
        Kind::Image => match images::look(engine, wanted, Some(&item.id)).await?.pop() {
            Some(image) => match image.stays(rules) {
                Some(reason) => return Ok(Some(reason)),
                None => images::remove(engine, &image).await?,
            },
            None => Gone::Yes,
        },
        _ => match volumes::look(engine, wanted, Some(&item.id)).await?.pop() {
            Some(volume) => match volume.stays(rules) {
                Some(reason) => return Ok(Some(reason)),
                None => volumes::remove(engine, &item.id).await?,
            },
            None => Gone::Yes,
        },
    };
    Ok(match gone {
        Gone::Yes => None,
        Gone::InUse => Some("it is in use by now".to_owned()),
    })
}

/// The engine's seconds.
pub(super) fn seconds(seconds: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// The engine's times in texts: RFC 3339, by its own clock's zone.
pub(super) fn moment(text: &str) -> Option<SystemTime> {
    let zone = text.len().checked_sub(6).and_then(|at| text.split_at_checked(at));
    let Some((local, zone)) = zone.filter(|(_, zone)| zone.starts_with(['+', '-'])) else {
        return humantime::parse_rfc3339(text).ok();
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let shift = Duration::from_secs(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60);
    let local = humantime::parse_rfc3339(&format!("{local}Z")).ok()?;
    if zone.starts_with('+') { local.checked_sub(shift) } else { local.checked_add(shift) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_any_zone_are_one_moment() {
        let utc = moment("2026-08-31T10:00:00Z");
        assert!(utc.is_some());
        for text in ["2026-08-31T12:00:00+02:00", "2026-08-31T04:30:00-05:30", "2026-08-31T10:00:00+00:00"] {
            assert_eq!(moment(text), utc, "{text}");
        }
        assert!(moment("2026-08-31T12:00:00.123456789+02:00") > utc);
        for bad in ["", "é", "2026-08-31", "0001-01-01T00:00:00Z", "2026-08-31T12:00:00+xx:00", "éé:00"] {
            assert_eq!(moment(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_is_young_or_of_an_unknown_age_stays() {
        let rules = Rules { older_than: Duration::from_secs(60), volumes: false };
        let ago = |seconds| SystemTime::now().checked_sub(Duration::from_secs(seconds));
        assert_eq!(rules.too_young(ago(61)), None);
        for since in [ago(0), ago(50), Some(SystemTime::now() + Duration::from_secs(1000)), None] {
            assert!(rules.too_young(since).is_some(), "{since:?}");
        }
        assert_eq!(Rules { older_than: Duration::ZERO, ..rules }.too_young(ago(0)), None);
    }
}
