//! The folders that are part of the program. Pure.

use super::folder::{Content, File};

/// Name of the image, path in its folder, content.
const FILES: [(&str, &str, &[u8]); 4] = [
    ("python-repl", "Dockerfile", include_bytes!("../../../images/python-repl/Dockerfile")),
    ("python-repl", "requirements.txt", include_bytes!("../../../images/python-repl/requirements.txt")),
    ("ripgrep", "Dockerfile", include_bytes!("../../../images/ripgrep/Dockerfile")),
    ("ripgrep", "server.py", include_bytes!("../../../images/ripgrep/server.py")),
];

/// Their names; those of several files come up more than once.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, ..)| *name)
}

/// The files of one, sorted; none where there is no such name.
pub(super) fn files(name: &str) -> Vec<File> {
    let own = FILES.iter().filter(|(owner, ..)| *owner == name);
    own.map(|(_, path, content)| File { path: (*path).to_owned(), content: Content::Data(content.to_vec()) }).collect()
}
