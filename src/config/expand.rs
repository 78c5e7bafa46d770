//! Variables inside values: `${VAR}`, `${VAR:-default}`, `${env:VAR}`. Knows nothing of keys or files.
//!
//! A text is gone through once; what a variable holds is never looked at again. `$VAR`, `$$` and a lone `$` are text.

use super::env::{Environment, is_name};

/// Why a text cannot be expanded. Neither the text nor any value is part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// A variable that is not set and has no default.
    Unset(String),
    /// A `${…}` that is none of the three forms.
    Malformed,
}

/// The text with every variable replaced.
pub(super) fn expand(text: &str, env: &dyn Environment) -> Result<String, Problem> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let end = inside.find('}').ok_or(Problem::Malformed)?;
        out.push_str(&value(&inside[..end], env)?);
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// What stands between the braces, looked up.
fn value(inside: &str, env: &dyn Environment) -> Result<String, Problem> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    // A nested `${A:-${B}}` would end at the wrong brace.
    if !is_name(name) || default.is_some_and(|default| default.contains("${")) {
        return Err(Problem::Malformed);
    }
    match (env.var(name), default) {
        (Some(value), None) => Ok(value),
        // As in a shell, `:-` also stands in for a variable that is empty.
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Problem::Unset(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::env::Fixed;
    use super::*;

    fn expanded(text: &str) -> Result<String, Problem> {
        let env = Fixed::from([("TOK", "s3cr3t$HOME ${OTHER}"), ("OTHER", "leak"), ("EMPTY", "")]);
        expand(text, &env)
    }

    #[test]
    fn the_three_forms_are_replaced_and_the_rest_is_text() {
        for (text, result) in [
            ("plain", "plain"),
            ("a ${OTHER} b ${env:OTHER}", "a leak b leak"),
            ("${NOPE:-d}${NOPE:-}", "d"),
            ("${env:NOPE:-a:-b}", "a:-b"),
            ("${EMPTY}|${EMPTY:-d}", "|d"),
            ("$OTHER $$x $ $$ a$", "$OTHER $$x $ $$ a$"),
            ("{OTHER} }", "{OTHER} }"),
            ("é${OTHER}é", "éleaké"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(result), "{text}");
        }
    }

    #[test]
    fn a_value_is_never_expanded_again() {
        assert_eq!(expanded("${TOK}").as_deref(), Ok("s3cr3t$HOME ${OTHER}"));
        assert_eq!(expanded("$${OTHER}").as_deref(), Ok("$leak"));
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_malformed_is_refused() {
        assert_eq!(expanded("${OTHER}${NOPE}"), Err(Problem::Unset("NOPE".into())));
        for text in ["${", "${}", "${a b}", "${input:x}", "${1A}", "${A-b}", "${NOPE:-${OTHER}}", "${OTHER"] {
            assert_eq!(expanded(text), Err(Problem::Malformed), "{text}");
        }
    }
}
