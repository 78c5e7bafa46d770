//! Images that were baked for servers, and former versions of ours without a name: which of them nothing refers to any
//! more, and how one is removed. Knows no lock; it is told what is wanted.
//!
//! Ours is what bears our labels *and* got them itself: an image that somebody built upon one of ours has inherited them.
//! So one with another name than ours is left alone, and one without a name goes only where the engine tells what it was
//! built upon.

use std::collections::{HashMap, HashSet};

use bollard::models::ImageSummary;
use bollard::query_parameters::{ListContainersOptions, ListImagesOptions, RemoveImageOptions, TagImageOptionsBuilder};

use crate::error::{Class, Fault};

use super::super::Engine;
use super::super::bake::{LABEL_BAKE, LABEL_INPUTS, LABEL_PACKAGE};
use super::super::engine::{CALL, Refused};
use super::remove::{Gone, once};
use super::stock::{Rules, moment, seconds};
use super::verdict::{Item, Kind};
use super::wanted::{KEEPER, Wanted};

/// What the names of baked images begin with.
const NAME: &str = "bulkhead/server-";
/// What the names of our labels begin with.
const LABELS: &str = "org.bulkhead.";
/// What older engines call an image without a name.
const NAMELESS: &str = "<none>";

/// An image of ours.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pub item: Item,
    /// Its names, all of them.
    pub names: Vec<String>,
    /// When it was made, or last named.
    pub since: Option<std::time::SystemTime>,
    /// Why it stays whatever its age; none where nothing needs it.
    needed: Option<String>,
}

impl Image {
    /// Why it stays, if it does.
    pub fn stays(&self, rules: &Rules) -> Option<String> {
        self.needed.clone().or_else(|| rules.too_young(self.since))
    }
}

/// Every image of ours, or only that one.
pub(super) async fn look(engine: &Engine, wanted: &Wanted, only: Option<&str>) -> Result<Vec<Image>, Fault> {
    let docker = engine.docker().await?;
    let options = ListImagesOptions { all: true, ..Default::default() };
    let all = engine.call("list images", CALL, docker.list_images(Some(options))).await?;
    let options = ListContainersOptions { all: true, ..Default::default() };
    let containers = engine.call("list containers", CALL, docker.list_containers(Some(options))).await?;
    let used = containers.into_iter().filter_map(|container| {
        let name = container.names.unwrap_or_default().into_iter().next().or(container.id)?;
        Some((container.image_id?, name.trim_start_matches('/').to_owned()))
    });
    let wanted_ids = resolve(engine, wanted, &all).await?;
    let all = All::new(&all, wanted_ids, used.collect());
    let mut found = Vec::new();
    for image in all.by_id.values().filter(|image| only.is_none_or(|only| image.id == only)) {
        if all.is_ours(image) {
            let since = if all.needed(image, wanted).is_none() { since(engine, image).await? } else { made(image) };
            found.push(Image {
                item: Item { kind: Kind::Image, id: image.id.clone(), name: shown_name(image) },
                names: names(image).map(str::to_owned).collect(),
                since,
                needed: all.needed(image, wanted),
            });
        }
    }
    found.sort_by(|a, b| (&a.item.name, &a.item.id).cmp(&(&b.item.name, &b.item.id)));
    Ok(found)
}

/// The identities of what is wanted, with who wants each. What the engine does not have nobody can lose.
async fn resolve(engine: &Engine, wanted: &Wanted, all: &[ImageSummary]) -> Result<HashMap<String, String>, Fault> {
    let mut ids = HashMap::new();
    // What a lock names by its identity is told before what a configuration calls by a name.
    let (locked, named): (Vec<_>, Vec<_>) = wanted.images.iter().partition(|(name, _)| name.starts_with("sha256:"));
    for (reference, who) in locked.into_iter().chain(named) {
        let listed = all.iter().find(|image| image.id == *reference);
        let id = match listed {
            Some(image) => image.id.clone(),
            None => match engine.image(reference).await {
                Ok(image) => image.id,
                Err(fault) if fault.class == Class::Isolation => continue,
                Err(fault) => return Err(fault),
            },
        };
        ids.entry(id).or_insert_with(|| who.clone());
    }
    Ok(ids)
}

/// When it was last given a name, which every bake and every lock of it does, or made.
async fn since(engine: &Engine, image: &ImageSummary) -> Result<Option<std::time::SystemTime>, Fault> {
    let docker = engine.docker().await?;
    let seen = match engine.ask("look at the image", CALL, docker.inspect_image(&image.id)).await? {
        Ok(seen) => seen,
        Err(Refused { status: 404, .. }) => return Ok(None),
        Err(why) => {
            let text = "the container engine failed to look at the image";
            return Err(Fault::new(Class::Engine, text).with_inward(format!("{text}: {}", why.message)));
        }
    };
    let named = seen.metadata.and_then(|metadata| metadata.last_tag_time);
    match named.filter(|text| !text.starts_with("0001-01-01")) {
        // A time that cannot be read may be any.
        Some(text) => Ok(moment(&text).zip(made(image)).map(|(named, made)| named.max(made))),
        None => Ok(made(image)),
    }
}

fn made(image: &ImageSummary) -> Option<std::time::SystemTime> {
    seconds(image.created)
}

fn names(image: &ImageSummary) -> impl Iterator<Item = &str> {
    image.repo_tags.iter().map(String::as_str).filter(|name| !name.starts_with(NAMELESS))
}

fn shown_name(image: &ImageSummary) -> String {
    names(image).next().map_or_else(|| "no name".to_owned(), str::to_owned)
}

fn label<'i>(image: &'i ImageSummary, name: &str) -> Option<&'i str> {
    image.labels.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

/// What we say of it, sorted.
fn own_labels(image: &ImageSummary) -> impl Iterator<Item = (&String, &String)> {
    let mut all: Vec<_> = image.labels.iter().filter(|(name, _)| name.starts_with(LABELS)).collect();
    all.sort();
    all.into_iter()
}

/// All that the engine has, with what is known of it.
struct All<'a> {
    by_id: HashMap<&'a str, &'a ImageSummary>,
    /// What each is built upon more than once, or at all: how many images say so.
    children: HashMap<&'a str, usize>,
    wanted: HashMap<String, String>,
    used: HashMap<String, String>,
}

impl<'a> All<'a> {
    fn new(all: &'a [ImageSummary], wanted: HashMap<String, String>, used: HashMap<String, String>) -> Self {
        let mut children = HashMap::new();
        for image in all.iter().filter(|image| !image.parent_id.is_empty()) {
            *children.entry(image.parent_id.as_str()).or_default() += 1;
        }
        All { by_id: all.iter().map(|image| (image.id.as_str(), image)).collect(), children, wanted, used }
    }

    fn parent(&self, image: &ImageSummary) -> Option<&'a ImageSummary> {
        self.by_id.get(image.parent_id.as_str()).copied()
    }

    fn has_children(&self, image: &ImageSummary) -> bool {
        self.children.contains_key(image.id.as_str())
    }

    /// Whether it is ours to look at: baked, or a former version without a name of one that we built.
    fn is_ours(&self, image: &ImageSummary) -> bool {
        let nameless = names(image).next().is_none();
        // What is on the way is another's matter, and a step of a build goes with its image.
        if label(image, LABEL_INPUTS).is_none()
            || label(image, LABEL_BAKE).is_some()
            || (nameless && self.has_children(image))
        {
            return false;
        }
        match self.parent(image) {
            // It has all of them from what it is built upon; a build of ours gives one after the other, each in a step.
            Some(parent) if own_labels(parent).eq(own_labels(image)) => false,
            Some(_) => nameless || label(image, LABEL_PACKAGE).is_some(),
            None => !nameless && label(image, LABEL_PACKAGE).is_some(),
        }
    }

    /// Why it has to stay, if it has to.
    fn needed(&self, image: &ImageSummary, wanted: &Wanted) -> Option<String> {
        if let Some(who) = self.wanted.get(&image.id) {
            return Some(format!("referred to by {who}"));
        }
        if let Some(container) = self.used.get(&image.id) {
            return Some(format!("in use by container {container}"));
        }
        if let Some(other) = foreign(image) {
            return Some(format!("it has a name that is not ours, {other}"));
        }
        if label(image, KEEPER).is_some_and(|keeper| keeper != wanted.keeper) {
            return Some("another state directory made it".to_owned());
        }
        if self.has_children(image) {
            return Some("another image is built upon it".to_owned());
        }
        self.wanted_below(image)
    }

    /// The engine removes with an image what it is built upon, as far as that has no name and nothing else is built upon
    /// it; a lock may yet refer to some of that.
    fn wanted_below(&self, image: &ImageSummary) -> Option<String> {
        let (mut at, mut seen) = (image, HashSet::new());
        while let Some(parent) = self.parent(at).filter(|parent| seen.insert(parent.id.as_str())) {
            if names(parent).next().is_some() || self.children.get(parent.id.as_str()) != Some(&1) {
                return None;
            }
            if let Some(who) = self.wanted.get(&parent.id) {
                return Some(format!(
                    "it is built upon {:.19}, which has no name and is referred to by {who}",
                    parent.id
                ));
            }
            at = parent;
        }
        None
    }
}

/// A name that we never give to what we bake.
fn foreign(image: &ImageSummary) -> Option<&str> {
    let digests = image.repo_digests.iter().map(String::as_str).filter(|name| !name.starts_with(NAMELESS));
    names(image).chain(digests).find(|name| !name.starts_with(NAME))
}

/// Removes an image without force: the engine keeps one that anything uses. It deletes by identity only what has one
/// name, so the others of ours go first, and come back where it is kept after all.
pub(super) async fn remove(engine: &Engine, image: &Image) -> Result<Gone, Fault> {
    let docker = engine.docker().await?;
    let (id, mut taken) = (image.item.id.as_str(), Vec::new());
    for name in image.names.iter().skip(1) {
        // A name may have gone to another image in the meantime.
        if engine.image(name).await.is_ok_and(|found| found.id == id) {
            let options = RemoveImageOptions { force: false, noprune: true, ..Default::default() };
            match once(engine, Kind::Image, docker.remove_image(name, Some(options), None)).await {
                Ok(Gone::Yes) => taken.push(name),
                other => {
                    give_back(engine, id, &taken).await;
                    return other;
                }
            }
        }
    }
    let options = RemoveImageOptions { force: false, ..Default::default() };
    let outcome = once(engine, Kind::Image, docker.remove_image(id, Some(options), None)).await;
    match outcome {
        Ok(Gone::Yes) => Ok(Gone::Yes),
        // Another may have been at it.
        Err(_) if is_gone(engine, id).await => Ok(Gone::Yes),
        other => {
            give_back(engine, id, &taken).await;
            other
        }
    }
}

async fn is_gone(engine: &Engine, id: &str) -> bool {
    engine.image(id).await.is_err_and(|fault| fault.class == Class::Isolation)
}

async fn give_back(engine: &Engine, id: &str, names: &[&String]) {
    let Ok(docker) = engine.docker().await else { return };
    for name in names {
        let (repo, tag) = name.rsplit_once(':').unwrap_or((name, "latest"));
        let options = TagImageOptionsBuilder::new().repo(repo).tag(tag).build();
        if let Err(fault) = engine.call("name an image", CALL, docker.tag_image(id, Some(options))).await {
            tracing::warn!("image {id:.19} has lost its name {name}: {fault}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(id: &str, parent: &str, names: &[&str], labels: &[(&str, &str)]) -> ImageSummary {
        ImageSummary {
            id: id.into(),
            parent_id: parent.into(),
            repo_tags: names.iter().map(|name| (*name).to_owned()).collect(),
            labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..Default::default()
        }
    }

    const BAKED: [(&str, &str); 2] = [(LABEL_PACKAGE, "npx:x"), (LABEL_INPUTS, "1")];
    const BUILT: [(&str, &str); 1] = [(LABEL_INPUTS, "2")];

    fn ours(all: &[ImageSummary]) -> Vec<&str> {
        let known = All::new(all, HashMap::new(), HashMap::new());
        all.iter().filter(|image| known.is_ours(image)).map(|image| image.id.as_str()).collect()
    }

    #[test]
    fn ours_is_what_was_baked_and_what_of_ours_has_lost_its_name() {
        let tag = "bulkhead/server-x:1-1";
        let all = [
            image("step", "", &[], &[]),
            image("label step", "step", &[], &BAKED[1..]),
            image("baked", "label step", &[tag], &BAKED),
            image("baked without a parent", "", &[tag], &BAKED),
            image("former", "step", &["<none>:<none>"], &BUILT),
            image("current", "step", &["bulkhead/x:latest"], &BUILT),
            image("nameless, of nobody knows what", "", &[], &BAKED),
            image("somebody's", "step", &[tag], &[]),
            image("on its way", "step", &["bulkhead/baking:1"], &[BAKED[0], BAKED[1], (LABEL_BAKE, "1")]),
            image("built upon ours", "baked", &["mine:1"], &BAKED),
            image("built upon ours and lost", "baked", &[], &BAKED),
            image("built upon ours, nameless", "current", &[], &BUILT),
        ];
        assert_eq!(ours(&all), ["baked", "baked without a parent", "former"]);
    }

    #[test]
    fn what_something_needs_stays_and_the_reason_is_told() {
        let tag = "bulkhead/server-x:1-1";
        let all = [
            image("base", "", &[], &[]),
            image("a", "base", &[tag], &BAKED),
            image("b", "", &[tag], &BAKED),
            image("c", "", &[tag, "mine:1"], &BAKED),
            image("d", "", &[tag], &[BAKED[0], BAKED[1], (KEEPER, "other")]),
            image("e", "", &[tag], &BAKED),
            image("f", "e", &["mine:2"], &[]),
            image("g", "", &[tag], &[BAKED[0], BAKED[1], (KEEPER, "me")]),
            image("h", "", &[tag], &BAKED),
        ];
        let of = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let known = All::new(&all, of(&[("base", "/l"), ("h", "/m")]), of(&[("b", "box")]));
        let wanted = Wanted { keeper: "me".into(), ..Wanted::default() };
        let why = |id: &str| known.needed(known.by_id[id], &wanted).unwrap_or_default();
        assert_eq!(why("a"), "it is built upon base, which has no name and is referred to by /l");
        assert_eq!(why("b"), "in use by container box");
        assert_eq!(why("c"), "it has a name that is not ours, mine:1");
        assert_eq!(why("d"), "another state directory made it");
        assert_eq!(why("e"), "another image is built upon it");
        assert_eq!(why("g"), "");
        assert_eq!(why("h"), "referred to by /m");
    }
}
