//! What one server offers: its definitions checked one by one, and held against those that were approved. Pure.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::wire::Object;
use crate::wire::text::visible;

/// One tool as its server defined it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The server's own name for it.
    pub name: String,
    /// The definition, byte for byte.
    pub definition: Arc<str>,
}

/// What a server offers, and what of it is withheld.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The tools that are served, in the server's order.
    pub tools: Vec<Tool>,
    /// What is not served, with the reason.
    pub withheld: Vec<String>,
    /// What was wrong with the list as a whole.
    pub warning: Option<String>,
}

impl Listing {
    /// Checks definitions one by one: a bad one is withheld and named, the others are served.
    pub fn of(definitions: Vec<String>, warning: Option<String>) -> Self {
        let mut listing = Listing { warning, ..Listing::default() };
        let mut seen = HashSet::new();
        for definition in definitions {
            match check(&definition) {
                Ok(name) if !seen.insert(name.clone()) => {
                    let text = format!("tool {:?} is defined more than once, the first counts", visible(&name, 80));
                    listing.withheld.push(text);
                }
                Ok(name) => listing.tools.push(Tool { name, definition: definition.into() }),
                Err(why) => listing.withheld.push(why),
            }
        }
        listing
    }

    /// What may be served of a live listing, given the approved one: a definition that is new or not the same, byte for
    /// byte, is withheld; one that is gone is gone.
    pub fn held_against(self, approved: &Listing) -> Self {
        let known: HashMap<&str, &str> =
            approved.tools.iter().map(|t| (t.name.as_str(), t.definition.as_ref())).collect();
        let mut held = Listing { tools: Vec::new(), ..self };
        for tool in self.tools {
            match known.get(tool.name.as_str()) {
                Some(definition) if *definition == tool.definition.as_ref() => held.tools.push(tool),
                Some(_) => held.withheld.push(format!("tool {:?} has changed since approval", visible(&tool.name, 80))),
                None => held.withheld.push(format!("tool {:?} is new since approval", visible(&tool.name, 80))),
            }
        }
        held
    }
}

/// The name of a definition that can be served; else what is wrong with it.
fn check(definition: &str) -> Result<String, String> {
    let Ok(object) = Object::parse(definition) else { return Err("a tool definition is no object".into()) };
    let Some(name) = object.string("name").filter(|n| !n.is_empty() && n.len() <= 512) else {
        return Err("a tool definition has no usable name".into());
    };
    let shown = visible(&name, 80);
    if object.repeats("name") {
        return Err(format!("tool {shown:?} has two names"));
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

    fn names(listing: &Listing) -> Vec<&str> {
        listing.tools.iter().map(|t| t.name.as_str()).collect()
    }

    #[test]
    fn a_bad_definition_is_withheld_and_the_others_are_served() {
        let listing = Listing::of(
            vec![
                tool("a", ""),
                "7".into(),
                r#"{"name":"no-schema"}"#.into(),
                r#"{"name":"array","inputSchema":{"type":"array"}}"#.into(),
                r#"{"inputSchema":{"type":"object"}}"#.into(),
                tool("twice", ""),
                tool("twice", r#","x":1"#),
                tool("z", r#","odd":1e400"#),
            ],
            None,
        );
        assert_eq!(names(&listing), ["a", "twice", "z"]);
        assert_eq!(listing.withheld.len(), 5, "{:?}", listing.withheld);
        assert!(!listing.tools[1].definition.contains("\"x\"") && listing.tools[2].definition.contains("1e400"));
    }

    #[test]
    fn what_is_new_or_changed_since_approval_is_withheld() {
        let approved = Listing::of(vec![tool("same", ""), tool("changed", ""), tool("gone", "")], None);
        let live = Listing::of(vec![tool("same", ""), tool("changed", r#","title":"x""#), tool("new", "")], None);
        let held = live.held_against(&approved);
        assert_eq!(names(&held), ["same"]);
        assert_eq!(
            held.withheld,
            ["tool \"changed\" has changed since approval", "tool \"new\" is new since approval"]
        );
    }
}
