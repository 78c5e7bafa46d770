//! What the names and versions of the registries look like, and nothing that a runner takes for an option, a file or an
//! address. Pure.

/// Letters and digits, and after the first one also `others`.
pub(super) fn word(text: &str, others: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.len() <= 214
        && text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// `name` or `@scope/name`: never `user/repository`, a path or an address.
pub(super) fn npm_name(name: &str) -> bool {
    let part = |text| word(text, "._~-") && text != "node_modules";
    match name.strip_prefix('@').map(|rest| rest.split_once('/')) {
        None => part(name),
        Some(scoped) => scoped.is_some_and(|(scope, name)| part(scope) && part(name)),
    }
}

/// `name` or `name[extra,extra]`.
pub(super) fn pypi_name(name: &str) -> bool {
    let part = |text| word(text, "._-");
    match name.strip_suffix(']').map(|rest| rest.split_once('[')) {
        None => part(name),
        Some(split) => split.is_some_and(|(name, extras)| part(name) && extras.split(',').all(part)),
    }
}

/// `name` or `name@range`, split. A range that holds `/` or `:` would be a file, a repository or an address.
pub(super) fn npm_extra(text: &str) -> Option<(&str, &str)> {
    let split = text.char_indices().skip(1).find(|(_, c)| *c == '@');
    let (name, range) = split.map_or((text, "latest"), |(at, _)| (&text[..at], &text[at + 1..]));
    let fits = |c: char| c.is_ascii_alphanumeric() || ".+-^~<>=|* ".contains(c);
    (npm_name(name) && !range.trim().is_empty() && range.chars().all(fits)).then_some((name, range))
}

/// A requirement of Python's; it is an element of a list when it gets to uv, which reads it strictly.
pub(super) fn pypi_extra(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_runner_could_take_for_something_else_is_no_word() {
        for text in [
            "",
            " ",
            "-g",
            "--registry=http://h",
            "../x",
            "./x",
            "/etc/passwd",
            "file:x",
            "git+https://h/x",
            "user/repo",
            "https://h/x.tgz",
            "x y",
            "x;id",
            "$(id)",
            "`id`",
            "x\nRUN id",
            "x\0",
            "@/x",
            "@a/",
            "@a/b/c",
            "npm:y",
            "x@1",
            ".x",
            "_x",
            "é",
            "x\"]",
            "x[",
            "x]",
            "[y]",
            "x[y][z]",
            "x[-y]",
            "x[y,]",
            &"x".repeat(215),
        ] {
            assert!(!npm_name(text) && !pypi_name(text) && !word(text, "._+!-"), "{text:?}");
        }
        assert!(!npm_name("node_modules") && !npm_name("x[y]") && !pypi_name("@a/b"));
    }

    #[test]
    fn an_extra_requirement_is_no_file_option_or_address() {
        for text in ["x@file:..", "x@npm:y", "x@a/b", "x@", "-g", "x@ ", "x@1\n", "@a/b@git+ssh://h"] {
            assert!(npm_extra(text).is_none(), "{text:?}");
        }
        for text in ["-r /x", "--index-url=http://h", "", "x\n-r /x", " x"] {
            assert!(!pypi_extra(text), "{text:?}");
        }
        assert_eq!(npm_extra("@a/b@^1.2 || >=3"), Some(("@a/b", "^1.2 || >=3")));
        assert_eq!(npm_extra("zod"), Some(("zod", "latest")));
        assert!(pypi_extra("mcp[cli]<2; python_version>'3'"));
    }
}
