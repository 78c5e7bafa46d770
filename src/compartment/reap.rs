//! What gateways that are gone left behind: found by label, removed by id. Touches nothing of the living, and what nobody
//! can say anything about only once its lease is over.
//!
//! Containers go first, for they hold the rest. What is still in use, or cannot be removed, does not keep the others, and
//! is found again in the next round.
//!
//! What is meant to stay, images that were baked and volumes that servers keep things in, is another matter: [`stock`] tells
//! what of it nothing refers to any more, and only where somebody has said so [`collect`] removes it.

use std::time::SystemTime;

use serde::Serialize;

use crate::error::Fault;

use self::remove::Gone;
use self::verdict::{Found, Verdict};
use super::Engine;
use super::owner::Owner;

mod find;
mod images;
mod remove;
mod stock;
mod usage;
mod verdict;
mod volumes;
mod wanted;

pub use stock::{Collected, Rules, Stock, Thing, collect, stock};
pub use verdict::{Item, Kind};
pub(super) use wanted::labels as kept_labels;
pub use wanted::{KEEPER, SCOPE, Scope, Wanted, scope_key, server_key};

/// What was done.
#[derive(Debug, Default, Serialize)]
pub struct Reaped {
    /// What was of gateways that are gone, removed.
    pub removed: Vec<Item>,
    /// What may still be wanted, left alone.
    pub left: Vec<Left>,
    /// What could not be done; the rest was.
    pub failed: Vec<Failed>,
}

/// Something that was left alone.
#[derive(Debug, Serialize)]
pub struct Left {
    /// What it is.
    #[serde(flatten)]
    pub item: Item,
    /// Why.
    pub reason: String,
}

/// Something that could not be done.
#[derive(Debug, Serialize)]
pub struct Failed {
    /// What was to be removed; none where it is a whole kind that could not be listed.
    pub item: Option<Item>,
    /// Why it was not.
    pub reason: String,
}

/// What [`reap`] would remove, as far as it can be listed.
pub async fn leftovers(engine: &Engine, me: &Owner) -> Result<Vec<Item>, Fault> {
    engine.docker().await?;
    let (mut all, now) = (Vec::new(), SystemTime::now());
    for kind in Kind::IN_ORDER {
        let found = find::all(engine, me, kind).await?;
        all.extend(found.into_iter().filter(|f| f.verdict(now) == Verdict::Remove).map(|f| f.item));
    }
    Ok(all)
}

/// Removes what is left over. Fails only where the engine does not answer at all.
pub async fn reap(engine: &Engine, me: &Owner) -> Result<Reaped, Fault> {
    engine.docker().await?;
    let mut reaped = Reaped::default();
    for kind in Kind::IN_ORDER {
        match find::all(engine, me, kind).await {
            Ok(found) => {
                for found in found {
                    reaped.one(engine, found).await;
                }
            }
            Err(fault) => reaped.failed.push(Failed { item: None, reason: fault.inward }),
        }
    }
    Ok(reaped)
}

impl Reaped {
    async fn one(&mut self, engine: &Engine, found: Found) {
        match found.verdict(SystemTime::now()) {
            Verdict::Theirs => {}
            Verdict::Leave(reason) => self.left.push(Left { item: found.item, reason }),
            Verdict::Remove => match remove::remove(engine, &found.item).await {
                Ok(Gone::Yes) => self.removed.push(found.item),
                Ok(Gone::InUse) => {
                    let reason = "its gateway is gone, but it is still in use".to_owned();
                    self.left.push(Left { item: found.item, reason });
                }
                Err(fault) => self.failed.push(Failed { item: Some(found.item), reason: fault.inward }),
            },
        }
    }
}

/// How many there are of each kind, for people: `2 containers, 1 volume`.
pub fn counted<'a>(items: impl IntoIterator<Item = &'a Item>) -> String {
    let items: Vec<_> = items.into_iter().collect();
    let count = |kind: Kind| items.iter().filter(|item| item.kind == kind).count();
    let words = Kind::IN_ORDER.into_iter().map(|kind| (kind, count(kind))).filter(|(_, n)| *n > 0);
    words.map(|(kind, n)| format!("{n} {kind}{}", if n == 1 { "" } else { "s" })).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_counted_in_their_order() {
        let item = |kind| Item { kind, id: "i".into(), name: "n".into() };
        let items = [Kind::Volume, Kind::Container, Kind::Container].map(item);
        assert_eq!(counted(&items), "2 containers, 1 volume");
        assert_eq!(counted(&[item(Kind::Image), item(Kind::Network)]), "1 network, 1 image");
        assert_eq!(counted([]), "");
    }
}
