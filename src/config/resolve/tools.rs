//! `tools`, `min_role` and `share`: who sees what of a server. Knows nothing of tools that exist.

use crate::config::ToolRules;
use crate::config::fault::quoted;
use crate::config::reader::Reader;

use super::gateway::role;

/// `tools = { allow, deny, min_role }`.
pub(super) fn tools(table: Option<Reader<'_>>) -> ToolRules {
    let mut rules = ToolRules::default();
    let Some(mut table) = table else { return rules };
    if let Some(field) = table.get("allow") {
        rules.allow = field.texts(pattern);
        // An empty list would read as "all" further on.
        if field.is_empty_list() {
            field.fault("must not be empty; leave it out to allow all, or set \"disabled\" on the server");
        }
    }
    if let Some(field) = table.get("deny") {
        rules.deny = field.texts(pattern);
    }
    if let Some(roles) = table.table("min_role") {
        for (tool, field) in roles.entries() {
            if let Err(why) = pattern(tool) {
                field.fault(why);
            }
            rules.min_role.extend(field.parse(role).map(|role| (tool.to_owned(), role)));
        }
    }
    table.finish();
    rules
}

/// A tool's name, or a pattern for several with `*`.
fn pattern(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.len() <= 256 && !text.contains(|c: char| c.is_control() || "?[]{}".contains(c));
    let hint = "is no pattern for tools; only \"*\" stands for other characters";
    good.then(|| text.to_owned()).ok_or_else(|| format!("{} {hint}", quoted(text)))
}
