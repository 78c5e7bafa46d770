//! All that an image is made of, as one value: files, the images it builds upon, a hash over both. Pure.

use std::io;

use sha2::{Digest as _, Sha256};

use crate::compartment::bake::context::Context;
use crate::error::{Class, Fault};

use super::Source;
use super::folder::{Content, DOCKERFILE, File};

mod dockerfile;

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
        let bases = dockerfile::bases(&String::from_utf8_lossy(text))
            .map_err(|why| Fault::new(Class::Usage, format!("image {name:?}: its {DOCKERFILE}, {why}")))?;
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
        let unclear = vec![file(DOCKERFILE, Content::Data(b"FROM a\nFROM ${B:+x}".to_vec()))];
        let said = Recipe::new("x", unclear, Source::Shipped).unwrap_err();
        assert_eq!(said.class, Class::Usage);
        assert!(said.outward.starts_with("image \"x\": its Dockerfile, line 2: "), "{}", said.outward);
    }
}
