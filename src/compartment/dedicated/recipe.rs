//! All that an image is made of, as one value: files, the images it builds upon, a hash over both. Pure.

use std::collections::BTreeMap;
use std::io;

use sha2::{Digest as _, Sha256};

use crate::compartment::bake::context::Context;
use crate::error::{Class, Fault};

use super::Source;
use super::folder::{Content, DOCKERFILE, File};

/// The folder of one image.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Its name, without the prefix.
    pub name: String,
    /// Where it comes from.
    pub source: Source,
    files: Vec<File>,
    /// The images that its Dockerfile names, in their order.
    pub(super) bases: Vec<String>,
}

impl Recipe {
    /// Refuses a folder without a Dockerfile.
    pub(super) fn new(name: &str, files: Vec<File>, source: Source) -> Result<Self, Fault> {
        let dockerfile = files.iter().find(|file| file.path == DOCKERFILE).map(|file| &file.content);
        let (Some(Content::Data(text)) | Some(Content::Program(text))) = dockerfile else {
            let why = format!("image {name:?}: its {DOCKERFILE} is no file");
            return Err(Fault::new(Class::Usage, why));
        };
        let bases = bases(&String::from_utf8_lossy(text));
        Ok(Recipe { name: name.to_owned(), source, files, bases })
    }

    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    pub(super) fn into_shipped(self) -> Self {
        Recipe { source: Source::Shipped, ..self }
    }

    /// `bulkhead/NAME`.
    pub fn reference(&self) -> String {
        format!("{}{}", super::PREFIX, self.name)
    }

    /// Lower-case hex of SHA-256 over the files and the identities of images they build upon.
    pub(super) fn inputs(&self, identities: &[String]) -> String {
        let mut hash = Sha256::new();
        let mut add = |kind: &str, path: &str, content: &[u8]| {
            let size = content.len();
            hash.update(format!("{kind} {} {size}\n{path}", path.len()));
            hash.update(content);
        };
        for identity in identities {
            add("base", identity, &[]);
        }
        for file in &self.files {
            match &file.content {
                Content::Data(data) => add("data", &file.path, data),
                Content::Program(data) => add("program", &file.path, data),
                Content::Folder => add("folder", &file.path, &[]),
                Content::Link(target) => add("link", &file.path, target.as_bytes()),
            }
        }
        crate::hex(&hash.finalize())
    }

    /// The folder as an archive for the engine.
    pub(super) fn context(&self) -> io::Result<Vec<u8>> {
        let mut context = Context::new();
        for file in &self.files {
            match &file.content {
                Content::Data(data) => context.file(&file.path, data)?,
                Content::Program(data) => context.program(&file.path, data)?,
                Content::Folder => context.folder(&file.path)?,
                Content::Link(target) => context.link(&file.path, target)?,
            }
        }
        context.finish()
    }
}

/// The images that a Dockerfile takes from, by `FROM` and `COPY --from`, without its own stages. The last one is what the
/// image itself stands on, unless that is a stage or nothing.
fn bases(text: &str) -> Vec<String> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let (mut defaults, mut stages, mut found) = (BTreeMap::new(), Vec::new(), Vec::new());
    for line in joined.lines() {
        let mut words = line.split_ascii_whitespace();
        let instruction = words.next().unwrap_or_default().to_ascii_uppercase();
        let mut words = words.peekable();
        let reference = match instruction.as_str() {
            // Those before the first FROM are the only ones that count in a FROM.
            "ARG" if found.is_empty() && stages.is_empty() => {
                let pairs = words.filter_map(|word| word.split_once('='));
                defaults
                    .extend(pairs.map(|(name, value)| (name.to_owned(), value.trim_matches(['"', '\'']).to_owned())));
                continue;
            }
            "FROM" => words.find(|word| !word.starts_with("--")).map(|word| expanded(word, &defaults)),
            "COPY" => words.find_map(|word| word.strip_prefix("--from=")).map(str::to_owned),
            _ => None,
        };
        let Some(reference) = reference else { continue };
        let is_stage = |name: &String| name.eq_ignore_ascii_case(&reference);
        if reference != "scratch" && reference.parse::<u32>().is_err() && !stages.iter().any(is_stage) {
            found.insert(if instruction == "FROM" { found.len() } else { 0 }, reference);
        }
        if instruction == "FROM" {
            let name = words.skip_while(|word| !word.eq_ignore_ascii_case("as")).nth(1);
            stages.push(name.unwrap_or_default().to_owned());
        }
    }
    found.dedup();
    found
}

/// A word with `$NAME`, `${NAME}` and `${NAME:-other}` replaced.
fn expanded(word: &str, defaults: &BTreeMap<String, String>) -> String {
    let mut parts = word.trim_matches(['"', '\'']).split('$');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (variable, rest) = match part.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some(found) => found,
            None => part.split_at(part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(part.len())),
        };
        let (name, other) = variable.split_once(":-").unwrap_or((variable, ""));
        whole.push_str(defaults.get(name).map_or(other, String::as_str));
        whole.push_str(rest);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: Content) -> File {
        File { path: path.to_owned(), content }
    }

    fn recipe(files: Vec<File>) -> Recipe {
        Recipe::new("x", files, Source::Shipped).unwrap()
    }

    #[test]
    fn the_images_that_a_dockerfile_builds_upon() {
        for (text, expected) in [
            ("FROM debian", vec!["debian"]),
            ("# FROM x\nARG BASE=bulkhead/base\nfrom ${BASE}\n", vec!["bulkhead/base"]),
            (
                "ARG A=\"a\" B='b'\nFROM $A AS one\nFROM --platform=linux/amd64 \\\n ${B} as two\nFROM one\n",
                vec!["a", "b"],
            ),
            (
                "FROM ${A:-bulkhead/base}\nARG A=x\nCOPY --chown=0 --from=bulkhead/y /a /b\n",
                vec!["bulkhead/y", "bulkhead/base"],
            ),
            (
                "ARG NS=bulkhead\nFROM ${NS}/base\nFROM $NS/probe:1\nFROM ${NONE}x\n",
                vec!["bulkhead/base", "bulkhead/probe:1", "x"],
            ),
            ("FROM scratch\nCOPY --from=0 /a /b\n", vec![]),
            ("FROM a AS b\nFROM B\nCOPY --from=b / /\n", vec!["a"]),
            ("", vec![]),
        ] {
            assert_eq!(bases(text), expected, "{text}");
        }
    }

    #[test]
    fn every_input_changes_the_hash() {
        let data = |text: &str| Content::Data(text.as_bytes().to_vec());
        let dockerfile = || file(DOCKERFILE, data("FROM a"));
        let id = ["sha256:1".to_owned()];
        let first = recipe(vec![dockerfile(), file("a", data("x"))]).inputs(&id);
        assert_eq!(first, recipe(vec![dockerfile(), file("a", data("x"))]).inputs(&id));
        for other in [
            vec![dockerfile()],
            vec![dockerfile(), file("a", data("y"))],
            vec![dockerfile(), file("b", data("x"))],
            vec![dockerfile(), file("ax", data(""))],
            vec![dockerfile(), file("a", Content::Program(b"x".to_vec()))],
            vec![dockerfile(), file("a", Content::Link("x".to_owned()))],
            vec![dockerfile(), file("a", Content::Folder)],
        ] {
            assert_ne!(first, recipe(other.clone()).inputs(&id), "{other:?}");
        }
        assert_ne!(first, recipe(vec![dockerfile(), file("a", data("x"))]).inputs(&["sha256:2".to_owned()]));
    }

    #[test]
    fn a_dockerfile_must_be_a_file() {
        for files in [vec![], vec![file(DOCKERFILE, Content::Folder)], vec![file("dockerfile", Content::Data(vec![]))]]
        {
            assert_eq!(Recipe::new("x", files, Source::Shipped).unwrap_err().class, Class::Usage);
        }
    }
}
