//! `docker run …` and `podman run …` as images in our own compartment. Knows nothing of engines; no client is ever run.
//!
//! Each flag is either said in our words, or needless because every compartment has it, or refused by name.

use super::super::env::{ENGINE_VARIABLES, is_name};
use super::super::fault::quoted;
use super::super::file::{Entry, Node, Table, Value};
use super::super::quantity;
use super::{Draft, Field, Line, Outer, Refusal, Word, own};

mod flags;
mod mount;

use flags::{FLAGS, Meaning};
use mount::Kind;

/// Reads the words of one line.
struct Reading<'a, 'd> {
    entry: &'d Outer<'a>,
    inner: &'d Table,
    draft: &'d mut Draft,
    notes: &'d mut Vec<String>,
    env: Table,
    secrets: Table,
    mounts: Vec<Node>,
}

/// Takes a line over.
pub(super) fn run(
    line: Line<'_>,
    entry: &Outer<'_>,
    inner: &Table,
    draft: &mut Draft,
    notes: &mut Vec<String>,
) -> Result<(), Refusal> {
    let here = line.command;
    let words = match line.args {
        [container, words @ ..] if container.text == "container" => words,
        words => words,
    };
    let (first, words) = words.split_first().ok_or_else(|| here.refusal("it does not say \"run\""))?;
    if first.text != "run" {
        return Err(first.refusal(format!(
            "{} {} is refused; only \"run\" can be",
            here.text,
            quoted(flag(first.text))
        )));
    }
    let (env, secrets) = (Table::default(), Table::default());
    let mut reading = Reading { entry, inner, draft, notes, env, secrets, mounts: Vec::new() };
    let rest = reading.flags(words)?;
    let (image, args) = rest.split_first().ok_or_else(|| here.refusal("it names no image"))?;
    reading.left_over()?;
    let Reading { draft, env, secrets, mounts, .. } = reading;
    draft.put("image", *image, Value::String(image.text.to_owned()))?;
    draft.put("args", here, Value::List(args.iter().map(own).collect()))?;
    for (key, table) in [("env", env), ("secrets", secrets)] {
        if !table.entries.is_empty() {
            draft.put(key, here, Value::Table(table))?;
        }
    }
    if !mounts.is_empty() {
        draft.put("mounts", here, Value::List(mounts))?;
    }
    Ok(())
}

/// The flag of a word, without a value that may be secret.
fn flag(text: &str) -> &str {
    text.split_once('=').map_or(text, |(flag, _)| flag)
}

impl Reading<'_, '_> {
    /// Goes through the flags; what is left are the image and its arguments.
    fn flags<'w>(&mut self, words: &'w [Word<'w>]) -> Result<&'w [Word<'w>], Refusal> {
        let mut rest = words;
        while let Some((word, more)) = rest.split_first() {
            rest = match word.text {
                "--" => return Ok(more),
                text if text.starts_with("--") => self.long(*word, more)?,
                text if text.starts_with('-') => self.short(*word, more)?,
                _ => return Ok(rest),
            };
        }
        Ok(rest)
    }

    /// `--flag`, `--flag=VALUE` or `--flag VALUE`.
    fn long<'w>(&mut self, word: Word<'w>, rest: &'w [Word<'w>]) -> Result<&'w [Word<'w>], Refusal> {
        let name = flag(word.text);
        let known = FLAGS.iter().find(|(long, ..)| *long == name);
        let meaning = known.map(|(.., meaning)| *meaning).ok_or_else(|| unknown(word, name))?;
        if let Meaning::Refused(why) = meaning {
            return Err(refused(word, name, why));
        }
        let inline = word.text.split_once('=').map(|(_, text)| Word { text, ..word });
        if meaning == Meaning::Already {
            return match inline.map(|value| value.text) {
                None | Some("true") => Ok(rest),
                Some(_) => Err(refused(word, word.text, "every compartment is so")),
            };
        }
        self.with_value(meaning, name, word, inline, rest)
    }

    /// `-i`, `-e VALUE`, `-eVALUE`, `-ie VALUE`.
    fn short<'w>(&mut self, word: Word<'w>, rest: &'w [Word<'w>]) -> Result<&'w [Word<'w>], Refusal> {
        if word.text == "-" {
            return Err(unknown(word, word.text));
        }
        for (at, letter) in word.text[1..].char_indices() {
            let known = FLAGS.iter().find(|(_, short, _)| *short == Some(letter));
            let (name, meaning) = known
                .map(|(long, _, meaning)| (*long, *meaning))
                .ok_or_else(|| unknown(word, &format!("-{letter}")))?;
            if let Meaning::Refused(why) = meaning {
                return Err(refused(word, &format!("-{letter}"), why));
            }
            if meaning != Meaning::Already {
                let text = &word.text[1 + at + letter.len_utf8()..];
                let text = text.strip_prefix('=').unwrap_or(text);
                let inline = (!text.is_empty()).then_some(Word { text, ..word });
                return self.with_value(meaning, name, word, inline, rest);
            }
        }
        Ok(rest)
    }

    fn with_value<'w>(
        &mut self,
        meaning: Meaning,
        name: &str,
        word: Word<'w>,
        inline: Option<Word<'w>>,
        rest: &'w [Word<'w>],
    ) -> Result<&'w [Word<'w>], Refusal> {
        let (value, rest) = match (inline, rest.split_first()) {
            (Some(value), _) => (value, rest),
            (None, Some((value, rest))) => (*value, rest),
            (None, None) => return Err(word.refusal(format!("{name:?} needs a value"))),
        };
        self.apply(meaning, name, value)?;
        Ok(rest)
    }

    fn apply(&mut self, meaning: Meaning, name: &str, value: Word<'_>) -> Result<(), Refusal> {
        let because = |why: &str| value.refusal(format!("the docker flag {name:?} with this value is refused{why}"));
        let wrong = || because("");
        let text = value.text;
        match meaning {
            Meaning::Already | Meaning::CapDrop => Ok(()),
            Meaning::LeftOut(why) => {
                self.note(format!("the docker flag {name:?} is left out, since {why}"));
                Ok(())
            }
            Meaning::Refused(why) => Err(refused(value, name, why)),
            Meaning::Env => self.variable(value),
            Meaning::Memory => self.draft.put("memory", value, Value::String(size(text).ok_or_else(wrong)?)),
            Meaning::Cpus => self.draft.put("cpus", value, Value::Float(text.parse().map_err(|_| wrong())?)),
            Meaning::Pids => self.draft.put("pids", value, Value::Integer(text.parse().map_err(|_| wrong())?)),
            Meaning::Network if text == "none" => self.draft.put("network", value, Value::String("none".to_owned())),
            Meaning::Network if ["bridge", "default"].contains(&text) => {
                self.note("there is no network unless \"egress\" says what may be reached".to_owned());
                Ok(())
            }
            Meaning::Network => Err(because(": say what may be reached with \"egress\" or \"host_ports\"")),
            Meaning::User => self.draft.put("user", value, Value::String(user(text).ok_or_else(wrong)?.to_owned())),
            Meaning::SecurityOpt if text.replace('=', ":").trim_end_matches(":true") == "no-new-privileges" => Ok(()),
            Meaning::SecurityOpt => Err(because(": nothing of a compartment is taken away")),
            Meaning::Entrypoint if text.trim().is_empty() => Err(wrong()),
            Meaning::Entrypoint => self.draft.put("command", value, Value::List(vec![own(&value)])),
            Meaning::Namespace if ["private", "none"].contains(&text) => Ok(()),
            Meaning::Namespace => Err(because(": a compartment shares nothing with the host or another container")),
            Meaning::Volume => self.mount(value, mount::volume(text).map_err(|why| because(&format!(": {why}")))?),
            Meaning::Mount => self.mount(value, mount::mount(text).map_err(|why| because(&format!(": {why}")))?),
            Meaning::Tmpfs => self.mount(value, mount::tmpfs(text).map_err(|why| because(&format!(": {why}")))?),
        }
    }

    fn note(&mut self, text: String) {
        self.notes.push(format!("{}: {text}", self.entry.path));
    }

    fn mount(&mut self, word: Word<'_>, kind: Kind) -> Result<(), Refusal> {
        match kind {
            Kind::Already => Ok(()),
            Kind::State(at) => {
                self.note("the volume is a new one, and empty".to_owned());
                self.draft.put("state", word, Value::String(at))
            }
            Kind::Host { host, at, write, silent } => {
                if silent {
                    let at = quoted(&at);
                    self.note(format!("the mount at {at} is read-only, since nothing says that it may be written to"));
                }
                let own = |value| Node { value, at: word.node.at };
                let entry = |key: &str, value| Entry { key: key.to_owned(), at: word.node.at, node: own(value) };
                let mut entries = vec![entry("host", Value::String(host)), entry("at", Value::String(at))];
                entries.extend(write.then(|| entry("write", Value::Boolean(true))));
                self.mounts.push(own(Value::Table(Table { entries })));
                Ok(())
            }
        }
    }

    /// `NAME=VALUE`, or `NAME`, whose value is the entry's own, else that of the gateway's environment.
    fn variable(&mut self, word: Word<'_>) -> Result<(), Refusal> {
        let (name, value) = word.text.split_once('=').map_or((word.text, None), |(name, value)| (name, Some(value)));
        if !is_name(name) {
            return Err(word.refusal("a variable after \"-e\" has no usable name"));
        }
        if self.env.get(name).or_else(|| self.secrets.get(name)).is_some() {
            return Err(word.refusal(format!("the variable {name:?} is set twice")));
        }
        let own = |value: String| Node { value: Value::String(value), at: word.node.at };
        let entry = |node| Entry { key: name.to_owned(), at: word.node.at, node };
        match (value, given(self.entry, name)) {
            (Some(value), _) => self.env.entries.push(entry(own(value.to_owned()))),
            (None, Some(node)) => self.env.entries.push(entry(node)),
            (None, None) if self.inner_sets(name) => {}
            (None, None) => self.secrets.entries.push(entry(own(format!("env:{name}")))),
        }
        Ok(())
    }

    /// Whether the `bulkhead` table says where a variable comes from.
    fn inner_sets(&self, name: &str) -> bool {
        ["env", "secrets"].iter().any(|key| match self.inner.get(key).map(|entry| &entry.node.value) {
            Some(Value::Table(table)) => table.get(name).is_some(),
            _ => false,
        })
    }

    /// Variables of the entry that no flag passes on were for the client alone. Those that choose its engine are refused.
    fn left_over(&mut self) -> Result<(), Refusal> {
        let Some(given) = self.entry.env.as_ref().and_then(Field::table) else { return Ok(()) };
        for entry in given.written().entries.iter().filter(|entry| self.env.get(&entry.key).is_none()) {
            if ENGINE_VARIABLES.contains(&entry.key.as_str()) {
                let text = format!("the variable {} would choose another engine", quoted(&entry.key));
                return Err(Refusal { at: entry.at, text });
            }
            let (path, key) = (&self.entry.path, quoted(&entry.key));
            self.notes.push(format!("{path}: the variable {key} is left out, since no \"-e\" passes it on"));
        }
        Ok(())
    }
}

/// The entry's own value for a variable.
fn given(entry: &Outer<'_>, name: &str) -> Option<Node> {
    match &entry.env.as_ref()?.node().value {
        Value::Table(table) => table.get(name).map(|entry| entry.node.clone()),
        _ => None,
    }
}

fn refused(word: Word<'_>, name: &str, why: &str) -> Refusal {
    word.refusal(format!("the docker flag {} is refused: {why}", quoted(name)))
}

fn unknown(word: Word<'_>, name: &str) -> Refusal {
    word.refusal(format!("the docker flag {} is refused: it is not known", quoted(name)))
}

/// Docker's sizes (`512m`, `512M`, `512MB`, `536870912`) as ours.
fn size(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let bare = lower.strip_suffix('b').unwrap_or(&lower);
    if quantity::size(bare).is_ok() {
        return Some(bare.to_owned());
    }
    let bytes: u64 = bare.parse().ok()?;
    bytes.is_multiple_of(1024).then(|| format!("{}k", bytes / 1024))
}

/// `UID` or `UID:GID` with both the same, which is what a compartment has.
fn user(text: &str) -> Option<&str> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    (user == group && !user.is_empty() && user.chars().all(|c| c.is_ascii_digit())).then_some(user)
}
