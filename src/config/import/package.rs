//! `npx …`, `uvx …` and their like as packages. Knows nothing of what is a good package name: that is judged like any other.

use super::super::file::Value;
use super::{Draft, Line, Refusal, Word, own};
use crate::config::fault::quoted;

/// A command that runs a package, and those of its options that can be taken over; any other is refused.
struct Runner {
    /// As it is called in messages.
    name: &'static str,
    /// The program and the words after it that make it this command.
    words: &'static [&'static str],
    /// The registry's runner in our words.
    ours: &'static str,
    /// Change nothing for us: nobody is there to ask, and nothing is printed.
    idle: &'static [&'static str],
    /// Name the package, where the program is called otherwise.
    package: &'static [&'static str],
    /// Whether the package can be named more than once, and further ones come beside it.
    several: bool,
    /// Name a further package.
    with: &'static [&'static str],
    /// Whether options after the package are the runner's own, up to `--`.
    greedy: bool,
}

const NPX: Runner = Runner {
    name: "npx",
    words: &["npx"],
    ours: "npx",
    idle: &["-y", "--yes", "-q", "--quiet"],
    package: &["-p", "--package"],
    several: true,
    with: &[],
    greedy: false,
};

const UVX: Runner = Runner {
    name: "uvx",
    words: &["uvx"],
    ours: "uvx",
    idle: &["-q", "--quiet"],
    package: &["--from"],
    several: false,
    with: &["--with"],
    greedy: false,
};

const RUNNERS: [Runner; 12] = [
    NPX,
    UVX,
    Runner { name: "npm exec", words: &["npm", "exec"], package: &["--package"], greedy: true, ..NPX },
    Runner { name: "npm x", words: &["npm", "x"], package: &["--package"], greedy: true, ..NPX },
    Runner { name: "pnpm dlx", words: &["pnpm", "dlx"], idle: &["-s", "--silent"], package: &["--package"], ..NPX },
    Runner { name: "pnpx", words: &["pnpx"], idle: &["-s", "--silent"], package: &["--package"], ..NPX },
    Runner { name: "yarn dlx", words: &["yarn", "dlx"], idle: &["-q", "--quiet"], ..NPX },
    Runner { name: "bunx", words: &["bunx"], idle: &["-y", "--silent"], several: false, ..NPX },
    Runner { name: "bun x", words: &["bun", "x"], idle: &["-y", "--silent"], several: false, ..NPX },
    Runner { name: "uv tool run", words: &["uv", "tool", "run"], ..UVX },
    Runner { name: "pipx run", words: &["pipx", "run"], package: &["--spec"], with: &[], ..UVX },
    Runner {
        name: "python -m pipx run",
        words: &["python", "-m", "pipx", "run"],
        package: &["--spec"],
        with: &[],
        ..UVX
    },
];

/// Takes a line over that runs a package; `None` where it does not.
pub(super) fn run(line: Line<'_>, draft: &mut Draft) -> Option<Result<(), Refusal>> {
    let program = line.program();
    let begins = |runner: &&Runner| {
        let given = std::iter::once(program.as_str()).chain(line.args.iter().map(|word| word.text));
        runner.words.len() <= 1 + line.args.len() && given.zip(runner.words).all(|(given, word)| given == *word)
    };
    let runner = RUNNERS.iter().find(begins)?;
    Some(runner.take_over(Line { args: &line.args[runner.words.len() - 1..], ..line }, draft))
}

impl Runner {
    fn take_over(&self, line: Line<'_>, draft: &mut Draft) -> Result<(), Refusal> {
        let (mut packages, mut with) = (Vec::new(), Vec::new());
        let here = line.command;
        let mut words = line.args.iter().copied();
        let mut greedy = self.greedy;
        let program = loop {
            let Some(word) = words.next() else { break None };
            let (name, value) = match word.text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (word.text, None),
            };
            if name == "--" {
                greedy = false;
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
        let program = program.ok_or_else(|| here.refusal(format!("{} names no package", self.name)))?;
        let mut packages = packages.into_iter();
        let package = packages.next();
        if package.is_some() {
            draft.put("executable", program, Value::String(program.text.to_owned()))?;
        }
        let package = package.unwrap_or(program);
        draft.put("package", package, Value::String(format!("{}:{}", self.ours, package.text)))?;
        let with: Vec<_> = packages.chain(with).map(|word| own(&word)).collect();
        if !with.is_empty() {
            draft.put("with", here, Value::List(with))?;
        }
        let mut args: Vec<Word<'_>> = words.collect();
        if greedy {
            match args.iter().position(|word| word.text.starts_with('-')) {
                Some(at) if args[at].text == "--" => drop(args.remove(at)),
                Some(at) => return Err(self.refused(args[at], flag(args[at].text))),
                None => {}
            }
        }
        draft.put("args", here, Value::List(args.iter().map(own).collect()))
    }

    /// Names the option without its value, which may be a secret: a short one is its first letter.
    fn refused(&self, word: Word<'_>, name: &str) -> Refusal {
        let name: String = name.chars().take(if name.starts_with("--") { usize::MAX } else { 2 }).collect();
        word.refusal(format!("the {} option {} is refused", self.name, quoted(&name)))
    }
}

/// The name of an option, without a value that may be secret.
fn flag(text: &str) -> &str {
    text.split_once('=').map_or(text, |(flag, _)| flag)
}
