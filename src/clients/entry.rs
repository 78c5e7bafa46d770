//! The one entry: what it says, and how one that is there is known. Knows no file.

use jsonc_parser::ast::{Object, Value};

use super::document::find;

/// What a client is told to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The `type`, where the client's entries must have one.
    pub kind: Option<String>,
    /// The program, by its absolute path: a client of the desktop has another `PATH` than its user's shell.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
}

/// Who an entry belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It starts this program, or one of its name.
    Ours,
    /// It starts or reaches something else.
    Another,
}

/// A value as it is written into a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Json<'a> {
    Text(&'a str),
    List(&'a [String]),
    Object(Vec<(&'a str, Json<'a>)>),
}

/// The members that are ours to write; what else stands in an entry is its user's or its client's.
pub(super) const OWN: [&str; 3] = ["type", "command", "args"];

impl Entry {
    /// Its members, in their order.
    pub(super) fn members(&self) -> Vec<(&str, Json<'_>)> {
        let kind = self.kind.as_deref().map(|kind| ("type", Json::Text(kind)));
        kind.into_iter().chain([("command", Json::Text(&self.command)), ("args", Json::List(&self.args))]).collect()
    }

    pub(super) fn json(&self) -> Json<'_> {
        Json::Object(self.members())
    }

    /// The entry that an object is, if it is nothing but one.
    pub(super) fn read(object: &Object<'_>) -> Option<Self> {
        let text = |key: &str| Some(find(object, key)?.value.as_string_lit()?.value.clone().into_owned());
        let list = |value: &Value<'_>| {
            let items = value.as_array()?.elements.iter();
            items.map(|item| Some(item.as_string_lit()?.value.clone().into_owned())).collect::<Option<Vec<_>>>()
        };
        if object.properties.iter().any(|property| !OWN.contains(&property.name.as_str())) {
            return None;
        }
        let kind = match find(object, "type") {
            Some(_) => Some(text("type")?),
            None => None,
        };
        Some(Entry { kind, command: text("command")?, args: list(&find(object, "args")?.value)? })
    }
}

impl Json<'_> {
    /// Whether a value that is written says the same.
    pub(super) fn is(&self, value: &Value<'_>) -> bool {
        let text = |value: &Value<'_>, text: &str| value.as_string_lit().is_some_and(|lit| lit.value == text);
        match self {
            Json::Text(own) => text(value, own),
            Json::List(own) => value.as_array().is_some_and(|array| {
                array.elements.len() == own.len() && array.elements.iter().zip(*own).all(|(v, own)| text(v, own))
            }),
            Json::Object(own) => value.as_object().is_some_and(|object| {
                object.properties.len() == own.len()
                    && own.iter().all(|(key, own)| find(object, key).is_some_and(|p| own.is(&p.value)))
            }),
        }
    }
}

/// Who an entry belongs to: ours are those that start this `program`, or whatever else is called `bulkhead`, since the
/// program may have been moved since.
pub(super) fn whose(entry: &Value<'_>, program: &str) -> Whose {
    let command = entry.as_object().and_then(|object| object.get_string("command"));
    let ours = command.is_some_and(|command| command.value == program || is_called_ours(&command.value));
    if ours { Whose::Ours } else { Whose::Another }
}

fn is_called_ours(command: &str) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.strip_suffix(".exe").or_else(|| name.strip_suffix(".EXE")).unwrap_or(name);
    name == "bulkhead"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_known_by_what_they_start() {
        for (command, ours) in [
            ("/usr/bin/bulkhead", true),
            ("bulkhead", true),
            (r"C:\Program Files\bulkhead\bulkhead.exe", true),
            ("/opt/renamed", true),
            ("/opt/bulkhead/npx", false),
            ("/usr/bin/bulkhead-old", false),
            ("", false),
        ] {
            assert_eq!(is_called_ours(command) || command == "/opt/renamed", ours, "{command}");
        }
    }
}
