//! What one server offers: its definitions checked one by one, and held against those that were approved. Pure.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::wire::Object;
use crate::wire::text::visible;

use super::lock::{Definition, Kind, LockedServer};

/// One tool, prompt or resource template as its server defined it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The server's own name for it; of a resource template the URI template.
    pub name: String,
    /// The definition, byte for byte.
    pub definition: Arc<str>,
}

/// What a server said that it offers, as it said it.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The definitions of its tools, as JSON, in its order.
    pub tools: Vec<String>,
    /// Of its prompts.
    pub prompts: Vec<String>,
    /// Of its resource templates.
    pub templates: Vec<String>,
    /// What it says of its use.
    pub instructions: Option<String>,
    /// What was wrong with its lists, if anything.
    pub warning: Option<String>,
}

/// What a server offers, and what of it is withheld.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The tools that are served, in the server's order.
    pub tools: Vec<Item>,
    /// The prompts, likewise.
    pub prompts: Vec<Item>,
    /// The resource templates, likewise.
    pub templates: Vec<Item>,
    /// What it says of its use.
    pub instructions: Option<String>,
    /// What is not served, with the reason.
    pub withheld: Vec<Withheld>,
    /// What was wrong with the lists as a whole.
    pub warning: Option<String>,
}

/// One thing that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withheld {
    /// What it is.
    pub kind: Kind,
    /// The server's own name for it, where it has a usable one.
    pub name: Option<String>,
    /// Why not.
    pub why: Why,
}

/// Why something is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its definition is another than the approved one.
    Changed,
    /// Nobody has approved it.
    New,
    /// It cannot be served at all.
    Bad(String),
}

impl Listing {
    /// Checks definitions one by one: a bad one is withheld and named, the others are served.
    pub fn of(told: Told) -> Self {
        let mut listing = Listing { warning: told.warning, instructions: told.instructions, ..Listing::default() };
        listing.tools = listing.check(Kind::Tool, told.tools);
        listing.prompts = listing.check(Kind::Prompt, told.prompts);
        listing.templates = listing.check(Kind::Template, told.templates);
        listing
    }

    /// What was approved.
    pub fn approved(locked: &LockedServer) -> Self {
        let texts = |kind| locked.definitions(kind).iter().map(|one: &Definition| one.definition.get().to_owned());
        Self::of(Told {
            tools: texts(Kind::Tool).collect(),
            prompts: texts(Kind::Prompt).collect(),
            templates: texts(Kind::Template).collect(),
            instructions: locked.instructions.clone(),
            warning: None,
        })
    }

    /// The items of one kind.
    pub fn items(&self, kind: Kind) -> &[Item] {
        match kind {
            Kind::Tool => &self.tools,
            Kind::Prompt => &self.prompts,
            Kind::Template => &self.templates,
        }
    }

    /// The items of one kind, as a lock has them.
    pub fn definitions(&self, kind: Kind) -> Result<Vec<Definition>, String> {
        let define = |item: &Item| {
            let raw = RawValue::from_string(item.definition.to_string()).map_err(|error| error.to_string())?;
            Definition::new(kind, &raw).map_err(|error| error.to_string())
        };
        self.items(kind).iter().map(define).collect()
    }

    fn check(&mut self, kind: Kind, definitions: Vec<String>) -> Vec<Item> {
        let (mut seen, mut items) = (HashSet::new(), Vec::new());
        for definition in definitions {
            // As a lock has it: a line break between tokens is no difference.
            let definition =
                if definition.contains(['\n', '\r']) { definition.replace(['\n', '\r'], " ") } else { definition };
            match check(kind, &definition) {
                Ok(name) if !seen.insert(name.clone()) => self.withheld.push(Withheld {
                    kind,
                    name: None,
                    why: Why::Bad(format!(
                        "{} {:?} is defined more than once, the first counts",
                        kind.word(),
                        visible(&name, 80)
                    )),
                }),
                Ok(name) => items.push(Item { name, definition: definition.into() }),
                Err(why) => self.withheld.push(Withheld { kind, name: None, why: Why::Bad(why) }),
            }
        }
        items
    }

    /// What may be served of a live listing, given the approved one: a definition that is new or not the same, byte for
    /// byte, is withheld; one that is gone is gone. Another text on its use is not passed on.
    pub fn held_against(self, approved: &Listing) -> Self {
        let mut held = Listing { withheld: self.withheld, warning: self.warning, ..Listing::default() };
        let mut hold = |kind, items: Vec<Item>| {
            let known: HashMap<&str, &str> =
                approved.items(kind).iter().map(|t| (t.name.as_str(), t.definition.as_ref())).collect();
            let mut same = Vec::new();
            for item in items {
                let why = match known.get(item.name.as_str()) {
                    Some(definition) if *definition == item.definition.as_ref() => {
                        same.push(item);
                        continue;
                    }
                    Some(_) => Why::Changed,
                    None => Why::New,
                };
                held.withheld.push(Withheld { kind, name: Some(item.name), why });
            }
            same
        };
        (held.tools, held.prompts, held.templates) =
            (hold(Kind::Tool, self.tools), hold(Kind::Prompt, self.prompts), hold(Kind::Template, self.templates));
        held.instructions = self.instructions.filter(|text| approved.instructions.as_ref() == Some(text));
        held
    }

    /// What is withheld since somebody has still to approve it.
    pub fn unapproved(&self) -> impl Iterator<Item = &Withheld> {
        self.withheld.iter().filter(|withheld| !matches!(withheld.why, Why::Bad(_)))
    }

    /// Everything that is not as it should be, in words.
    pub fn notes(&self) -> Vec<String> {
        self.withheld.iter().map(ToString::to_string).chain(self.warning.clone()).collect()
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = visible(self.name.as_deref().unwrap_or_default(), 80);
        match &self.why {
            Why::Changed => write!(f, "{} {name:?} has changed since approval", self.kind.word()),
            Why::New => write!(f, "{} {name:?} is new since approval", self.kind.word()),
            Why::Bad(why) => f.write_str(why),
        }
    }
}

/// The name of a definition that can be served; else what is wrong with it.
fn check(kind: Kind, definition: &str) -> Result<String, String> {
    let word = kind.word();
    let Ok(object) = Object::parse(definition) else { return Err(format!("a {word} definition is no object")) };
    let Some(name) = object.string(kind.key()).filter(|n| !n.is_empty() && n.len() <= 512) else {
        return Err(format!("a {word} definition has no usable {}", kind.key()));
    };
    let shown = visible(&name, 80);
    if object.repeats(kind.key()) {
        return Err(format!("{word} {shown:?} has two names"));
    }
    if kind != Kind::Tool {
        return Ok(name);
    }
    match object.object("inputSchema") {
        Some(schema) if schema.string("type").as_deref() == Some("object") => Ok(name),
        _ => Err(format!("tool {shown:?} has no inputSchema of type object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, more: &str) -> String {
        format!(r#"{{"name":"{name}"{more},"inputSchema":{{"type":"object"}}}}"#)
    }

    fn listing(tools: Vec<String>) -> Listing {
        Listing::of(Told { tools, ..Told::default() })
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.tools.iter().map(|t| t.name.as_str()).collect()
    }

    #[test]
    fn a_bad_definition_is_withheld_and_the_others_are_served() {
        let listing = listing(vec![
            tool("a", ""),
            "7".into(),
            r#"{"name":"no-schema"}"#.into(),
            r#"{"name":"array","inputSchema":{"type":"array"}}"#.into(),
            r#"{"inputSchema":{"type":"object"}}"#.into(),
            tool("twice", ""),
            tool("twice", r#","x":1"#),
            tool("z", r#","odd":1e400"#),
        ]);
        assert_eq!(names(&listing), ["a", "twice", "z"]);
        assert_eq!(listing.withheld.len(), 5, "{:?}", listing.withheld);
        assert!(!listing.tools[1].definition.contains("\"x\"") && listing.tools[2].definition.contains("1e400"));
    }

    #[test]
    fn what_is_new_or_changed_since_approval_is_withheld() {
        let approved = listing(vec![tool("same", ""), tool("changed", ""), tool("gone", "")]);
        let live = listing(vec![tool("same", ""), tool("changed", r#","title":"x""#), tool("new", "")]);
        let held = live.held_against(&approved);
        assert_eq!(names(&held), ["same"]);
        assert_eq!(held.notes(), ["tool \"changed\" has changed since approval", "tool \"new\" is new since approval"]);
    }

    #[test]
    fn prompts_templates_and_instructions_are_held_too() {
        let told = |more: &str, instructions: &str| {
            Listing::of(Told {
                prompts: vec![format!(r#"{{"name":"p"{more}}}"#)],
                templates: vec![format!(r#"{{"uriTemplate":"a://{{x}}","name":"t"{more}}}"#)],
                instructions: Some(instructions.to_owned()),
                ..Told::default()
            })
        };
        let same = told("", "a").held_against(&told("", "a"));
        assert_eq!((same.prompts.len(), same.templates.len(), same.instructions.as_deref()), (1, 1, Some("a")));
        let held = told(r#","title":"x""#, "b").held_against(&told("", "a"));
        assert_eq!((held.prompts.len(), held.templates.len(), held.instructions.as_deref()), (0, 0, None));
        let both =
            ["prompt \"p\" has changed since approval", "resource template \"a://{x}\" has changed since approval"];
        assert_eq!(held.notes(), both);
    }
}
