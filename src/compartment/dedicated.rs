//! Images of their own for servers: `bulkhead/NAME`, built by the engine from a folder with a Dockerfile. Knows no server
//! and no configuration.
//!
//! Folders ship with the program ([`shipped`]), and others lie in `images` beside the configuration ([`folder`]); one of
//! these has precedence over a shipped one of the same name. The build has the engine's default network, for what it
//! installs; what is started from the image has the network of its compartment, as any server.
//!
//! An image gets its name only after it was looked at: one that no compartment would take is not left under it.

use std::path::{Path, PathBuf};

use crate::error::{Class, Fault};

pub mod folder;
mod image;
mod recipe;
mod shipped;

pub use image::{Built, State, build};
pub use recipe::Recipe;

/// What all names here begin with.
pub const PREFIX: &str = "bulkhead/";

/// Names of images that are made otherwise, and the beginning of those of packages.
const OTHERS: [&str; 6] = ["base", "runtime", "probe", "fixture", "baking", "building"];
const PACKAGES: &str = "server-";

/// Where a folder comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is part of the program.
    Shipped,
    /// It lies beside the configuration.
    Own {
        /// Where.
        at: PathBuf,
        /// Whether the program has another one of that name.
        overrides: bool,
    },
}

/// The folder of images that belongs to a configuration file.
pub fn beside(config: &Path) -> PathBuf {
    config.with_file_name("images")
}

/// Every name that can be built, sorted, and where its folder is; `images` is the folder of own ones, which need not be.
pub fn known(images: &Path) -> Vec<(String, Source)> {
    let entries = std::fs::read_dir(images).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let own =
        names.filter(|name| is_name(name) && images.join(name).join(folder::DOCKERFILE).symlink_metadata().is_ok());
    let shipped = shipped::names().map(str::to_owned);
    let mut names: Vec<String> = own.chain(shipped).collect();
    names.sort();
    names.dedup();
    names.into_iter().map(|name| (name.clone(), source(&name, images))).collect()
}

/// The name in a reference of the kind that is built here, whether or not there is a folder for it.
pub fn name_in(reference: &str) -> Option<&str> {
    let name = reference.strip_prefix(PREFIX)?;
    Some(name.strip_suffix(":latest").unwrap_or(name)).filter(|name| is_name(name))
}

/// The name of the image behind a reference, if it is one that can be built here.
pub fn named_by<'r>(reference: &'r str, images: &Path) -> Option<&'r str> {
    let name = name_in(reference)?;
    known(images).iter().any(|(known, _)| known == name).then_some(name)
}

/// The folder of a name, read whole; an unknown name is told with those that are known.
pub fn find(name: &str, images: &Path) -> Result<Recipe, Fault> {
    let known = known(images);
    let Some((_, source)) = known.iter().find(|(known, _)| known == name) else { return Err(unknown(name, &known)) };
    let files = match source {
        Source::Shipped => shipped::files(name),
        Source::Own { at, .. } => folder::read(at)?,
    };
    // A copy of what ships, as in a checkout of this project, is none that overrides.
    let shipped = Recipe::new(name, shipped::files(name), Source::Shipped);
    match Recipe::new(name, files, source.clone()) {
        Ok(own) if shipped.is_ok_and(|shipped| shipped.files() == own.files()) => Ok(own.into_shipped()),
        other => other,
    }
}

fn source(name: &str, images: &Path) -> Source {
    let at = images.join(name);
    let overrides = shipped::names().any(|shipped| shipped == name);
    if overrides && at.symlink_metadata().is_err() { Source::Shipped } else { Source::Own { at, overrides } }
}

/// `[a-z0-9-]`, with a letter or digit at both ends, and none that is made otherwise.
fn is_name(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 64
        && text.starts_with(ends)
        && text.ends_with(ends)
        && text.chars().all(|c| ends(c) || c == '-')
        && !OTHERS.contains(&text)
        && !text.starts_with(PACKAGES)
}

fn unknown(name: &str, known: &[(String, Source)]) -> Fault {
    if OTHERS.contains(&name) {
        return Fault::new(Class::Usage, format!("image {name:?} is not built by this command: run scripts/setup"));
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
    let near = names.iter().map(|known| (strsim::damerau_levenshtein(name, known), *known)).min();
    let meant = near.filter(|(distance, known)| *distance <= (known.len() / 3).max(1));
    let meant = meant.map(|(_, known)| format!("; did you mean {known:?}?")).unwrap_or_default();
    Fault::new(Class::Usage, format!("there is no image {name:?}{meant}; there are: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_slugs_and_not_those_of_other_images() {
        let long = "a".repeat(65);
        for (name, good) in [
            ("python-repl", true),
            ("a", true),
            ("7z", true),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("..", false),
            ("a/b", false),
            ("../a", false),
            ("a.b", false),
            ("A", false),
            ("a b", false),
            ("a\0", false),
            ("é", false),
            ("base", false),
            ("server-time", false),
            (&long, false),
        ] {
            assert_eq!(is_name(name), good, "{name:?}");
        }
    }

    #[test]
    fn own_folders_stand_beside_the_shipped_ones_and_before_them() {
        let dir = tempfile::tempdir().unwrap();
        let images = dir.path().join("images");
        let shipped: Vec<String> = known(&images).into_iter().map(|(name, _)| name).collect();
        assert_eq!(shipped, ["python-repl", "ripgrep"]);
        for name in ["ripgrep", "mine", "base", "Upper", "empty"] {
            std::fs::create_dir_all(images.join(name)).unwrap();
        }
        for name in ["ripgrep", "mine", "base", "Upper"] {
            std::fs::write(images.join(name).join("Dockerfile"), "FROM x\n").unwrap();
        }
        let own = |name: &str, overrides| (name.to_owned(), Source::Own { at: images.join(name), overrides });
        let found = known(&images);
        assert_eq!(found, [own("mine", false), ("python-repl".to_owned(), Source::Shipped), own("ripgrep", true)]);
        assert_eq!(named_by("bulkhead/mine", &images), Some("mine"));
        assert_eq!(named_by("bulkhead/mine:latest", &images), Some("mine"));
        for other in ["bulkhead/mine:1", "mine", "bulkhead/base", "bulkhead/empty", "x/bulkhead/mine"] {
            assert_eq!(named_by(other, &images), None, "{other}");
        }
        let said = find("ripgerp", &images).unwrap_err();
        assert_eq!(said.class, Class::Usage);
        let expected =
            "there is no image \"ripgerp\"; did you mean \"ripgrep\"?; there are: mine, python-repl, ripgrep";
        assert_eq!(said.outward, expected);
        assert!(find("base", &images).unwrap_err().outward.contains("scripts/setup"));
        assert!(!find("../x", &images).unwrap_err().outward.contains("did you mean"));
    }

    #[test]
    fn what_ships_is_whole_and_a_copy_of_it_does_not_override() {
        for (name, source) in known(Path::new("no such folder")) {
            assert_eq!(source, Source::Shipped);
            find(&name, Path::new("no such folder")).unwrap();
            let in_checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("images");
            assert_eq!(find(&name, &in_checkout).unwrap().source, Source::Shipped, "{name}: the table lacks a file");
        }
    }
}
