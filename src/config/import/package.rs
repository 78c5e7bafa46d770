//! `npx …` and `uvx …` as packages. Knows nothing of what is a good package name: that is judged like any other.

use super::super::file::Value;
use super::{Draft, Line, Refusal, Word, own};
use crate::config::fault::quoted;

/// The options of a runner that can be taken over; any other is refused.
struct Options {
    runner: &'static str,
    /// Change nothing for us: nobody is there to ask, and nothing is printed.
    idle: &'static [&'static str],
    /// Name the package, where the program is called otherwise.
    package: &'static [&'static str],
    /// Whether the package can be named more than once, and further ones come beside it.
    several: bool,
    /// Name a further package.
    with: &'static [&'static str],
}

const NPX: Options = Options {
    runner: "npx",
    idle: &["-y", "--yes", "-q", "--quiet"],
    package: &["-p", "--package"],
    several: true,
    with: &[],
};

const UVX: Options =
    Options { runner: "uvx", idle: &["-q", "--quiet"], package: &["--from"], several: false, with: &["--with"] };

/// `npx [-y] [-p PACKAGE]… PROGRAM ARGS…`.
pub(super) fn npx(line: Line<'_>, draft: &mut Draft) -> Result<(), Refusal> {
    NPX.take_over(line, draft)
}

/// `uvx [--from PACKAGE] [--with PACKAGE]… PROGRAM ARGS…`.
pub(super) fn uvx(line: Line<'_>, draft: &mut Draft) -> Result<(), Refusal> {
    UVX.take_over(line, draft)
}

impl Options {
    fn take_over(&self, line: Line<'_>, draft: &mut Draft) -> Result<(), Refusal> {
        let (mut packages, mut with) = (Vec::new(), Vec::new());
        let here = line.command;
        let mut words = line.args.iter().copied();
        let program = loop {
            let Some(word) = words.next() else { break None };
            let (name, value) = match word.text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word.text, None),
            };
            if name == "--" {
                break words.next();
            } else if !name.starts_with('-') {
                break Some(word);
            } else if self.idle.contains(&name) && value.is_none() {
                continue;
            }
            let list = match name {
                name if self.package.contains(&name) && (self.several || packages.is_empty()) => &mut packages,
                name if self.with.contains(&name) => &mut with,
                _ => return Err(self.refused(word, name)),
            };
            let value = value.map(|text| Word { text, ..word }).or_else(|| words.next());
            list.push(value.ok_or_else(|| word.refusal(format!("{} needs a value", quoted(name))))?);
        };
        let program = program.ok_or_else(|| here.refusal(format!("{} names no package", self.runner)))?;
        let mut packages = packages.into_iter();
        let package = packages.next();
        if package.is_some() {
            draft.put("executable", program, Value::String(program.text.to_owned()))?;
        }
        let package = package.unwrap_or(program);
        draft.put("package", package, Value::String(format!("{}:{}", self.runner, package.text)))?;
        let with: Vec<_> = packages.chain(with).map(|word| own(&word)).collect();
        if !with.is_empty() {
            draft.put("with", here, Value::List(with))?;
        }
        draft.put("args", here, Value::List(words.map(|word| own(&word)).collect()))
    }

    /// Names the option without its value, which may be a secret: a short one is its first letter.
    fn refused(&self, word: Word<'_>, name: &str) -> Refusal {
        let name: String = name.chars().take(if name.starts_with("--") { usize::MAX } else { 2 }).collect();
        word.refusal(format!("the {} option {} is refused", self.runner, quoted(&name)))
    }
}
