//! Where a secret comes from: `env:NAME` or `file:PATH`. Knows nothing of who needs it.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::{Environment, is_name};
use crate::config::Sensitive;

/// Larger files are no secrets.
const LARGEST: u64 = 64 << 10;

/// A place that holds a secret. Never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Source {
    /// A variable of the gateway's environment.
    Variable(String),
    /// A file of the host, by its absolute path.
    File(PathBuf),
}

impl Source {
    /// Parses a source. The text is no part of the error: it may be a secret that was put in the wrong place.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("env", name)) if is_name(name) => Ok(Source::Variable(name.to_owned())),
            Some(("file", path)) if Path::new(path).is_absolute() && !path.contains(char::is_control) => {
                Ok(Source::File(PathBuf::from(path)))
            }
            _ => Err("must be \"env:NAME\" or \"file:/PATH\"".to_owned()),
        }
    }

    /// The secret, or what is missing. A secret that is empty is missing: it would be an empty credential.
    pub(in crate::config) fn read(&self, env: &dyn Environment) -> Result<Sensitive, String> {
        match self {
            Source::Variable(name) => match env.var(name) {
                None => Err(format!("needs the variable {name:?}, which is not set")),
                Some(value) if value.is_empty() => Err(format!("needs the variable {name:?}, which is empty")),
                Some(value) => Ok(Sensitive::new(value)),
            },
            Source::File(path) => {
                read(path).map(Sensitive::new).map_err(|why| format!("needs the file {path:?}, which {why}"))
            }
        }
    }
}

/// The text of a file without the one line break that editors put at its end.
fn read(path: &Path) -> Result<String, String> {
    let broken = |error: std::io::Error| format!("cannot be read: {error}");
    if !std::fs::metadata(path).map_err(broken)?.is_file() {
        return Err("is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(broken)?.take(LARGEST + 1).read_to_end(&mut bytes).map_err(broken)?;
    if bytes.len() as u64 > LARGEST {
        return Err("is larger than 64 KiB".to_owned());
    }
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8")?;
    let text = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text)).unwrap_or(&text);
    match text {
        "" => Err("is empty".to_owned()),
        text if text.contains('\0') => Err("holds a NUL character".to_owned()),
        text => Ok(text.to_owned()),
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Variable(name) => write!(f, "env:{name}"),
            Source::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fixed;
    use super::*;

    #[test]
    fn a_source_that_is_none_is_refused_without_showing_it() {
        for text in ["sk-s3cr3t", "env:", "env:a b", "file:", "file:rel", "file:/a\n", "vault:/x", "ENV:A", ""] {
            assert_eq!(Source::parse(text).unwrap_err(), "must be \"env:NAME\" or \"file:/PATH\"", "{text}");
        }
    }

    #[test]
    fn a_secret_is_read_from_its_place() {
        let env = Fixed::from([("A", "s3cr3t"), ("E", "")]);
        assert_eq!(Source::parse("env:A").unwrap().read(&env).unwrap().reveal(), "s3cr3t");
        let said = |text: &str| Source::parse(text).unwrap().read(&env).unwrap_err();
        assert_eq!(said("env:NOPE"), "needs the variable \"NOPE\", which is not set");
        assert_eq!(said("env:E"), "needs the variable \"E\", which is empty");
        assert!(said("file:/no/such").starts_with("needs the file \"/no/such\", which cannot be read: No such file"));
    }

    #[test]
    fn a_file_gives_its_text_without_the_last_line_break() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let get = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let source = Source::parse(&format!("file:{}", path.display())).unwrap();
            source.read(&Fixed::default()).map(|secret| secret.reveal().to_owned())
        };
        assert_eq!(get(b"a\nb\r\n").unwrap(), "a\nb");
        assert_eq!(get(b" a ").unwrap(), " a ");
        for bytes in [b"".as_slice(), b"\n", b"a\0b", b"\xff", &[b'x'; 70_000]] {
            let said = get(bytes).unwrap_err();
            assert!(said.contains(", which is ") || said.contains(", which holds "), "{said}");
        }
    }
}
