//! `env` and `secrets`: the variables that a server gets, and no others. Knows nothing of how they reach it.

use std::collections::BTreeMap;

use crate::config::Sensitive;
use crate::config::env::{ENGINE_VARIABLES, Source, is_name};
use crate::config::reader::{Field, Reader};

use super::texts::Texts;

/// The variables of one server.
#[derive(Default)]
pub(super) struct Variables {
    /// Names with their values.
    pub(super) values: BTreeMap<String, Sensitive>,
    /// For the digest: names with what was written, which for a secret is its source.
    pub(super) written: BTreeMap<String, String>,
}

/// Reads `env` and `secrets` of a server.
pub(super) fn variables(r: &mut Reader<'_>, texts: &mut Texts<'_>, contained: bool) -> Variables {
    let mut found = Variables::default();
    for (name, field) in r.table("env").iter().flat_map(Reader::entries) {
        let text = texts.text(&field);
        if let (true, Some(text)) = (acceptable(name, &field, contained), text) {
            found.values.insert(name.to_owned(), Sensitive::new(text.value));
            found.written.insert(name.to_owned(), format!("={}", text.written));
        }
    }
    for (name, field) in r.table("secrets").iter().flat_map(Reader::entries) {
        let source = field.parse(Source::parse);
        if found.written.contains_key(name) {
            field.fault("is in \"env\" too; give it once");
        }
        let (true, Some(source)) = (acceptable(name, &field, contained), source) else { continue };
        match source.read(texts.env) {
            Ok(secret) => {
                found.values.insert(name.to_owned(), secret);
            }
            Err(lacks) => texts.needs.push((field.key_at, format!("{} {lacks}", field.path))),
        }
        found.written.insert(name.to_owned(), source.to_string());
    }
    found
}

fn acceptable(name: &str, field: &Field<'_>, contained: bool) -> bool {
    if !is_name(name) {
        field.fault("is no name of a variable; letters, digits and \"_\", not beginning with a digit");
        return false;
    }
    // It could only serve to leave the compartment.
    if contained && ENGINE_VARIABLES.contains(&name) {
        field.fault("leads to a container engine, which no server in a container may reach");
        return false;
    }
    true
}
