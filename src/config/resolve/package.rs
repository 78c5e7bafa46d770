//! Package specifications: strict enough that nothing of them can be an option, a path, an address or a command where
//! an image is built from them. Knows nothing of registries.

use crate::config::Runner;

/// Longest name or version that a registry has.
const LONGEST: usize = 214;

/// `npx:NAME[@VERSION]` or `uvx:NAME[@VERSION]` (also `uvx:NAME==VERSION`).
///
/// The text is no part of the error: an address with credentials may have been put in its place.
pub(super) fn package(text: &str) -> Result<(Runner, String, Option<String>), String> {
    let (runner, rest) = match text.split_once(':') {
        Some(("npx", rest)) => (Runner::Npx, rest),
        Some(("uvx", rest)) => (Runner::Uvx, rest),
        _ => return Err("must begin with \"npx:\" or \"uvx:\"".to_owned()),
    };
    let (name, version) = match runner {
        Runner::Npx => npm(rest),
        Runner::Uvx => pypi(rest),
    }
    .ok_or_else(|| {
        let (registry, form) = match runner {
            Runner::Npx => ("npm", "npx:NAME, npx:@SCOPE/NAME or npx:NAME@VERSION"),
            Runner::Uvx => ("PyPI", "uvx:NAME, uvx:NAME[EXTRA] or uvx:NAME@VERSION"),
        };
        format!("is no package of {registry}; write {form}, with one exact version")
    })?;
    Ok((runner, name, version))
}

/// A requirement beside the package: an npm package, or a PyPI requirement such as `mcp<2`.
pub(super) fn requirement(runner: Runner, text: &str) -> Result<String, String> {
    let good = match runner {
        Runner::Npx => npm(text).is_some(),
        Runner::Uvx => {
            let end = text.find(|c: char| "=<>~!".contains(c)).unwrap_or(text.len());
            let (name, bounds) = text.split_at(end);
            pypi_name(name) && (bounds.is_empty() || bounds.split(',').all(bound))
        }
    };
    let what = match runner {
        Runner::Npx => "is no npm package such as \"zod@3.25.0\"",
        Runner::Uvx => "is no requirement such as \"mcp<2\" or \"httpx[http2]>=0.27,<1\"",
    };
    good.then(|| text.to_owned()).ok_or_else(|| what.to_owned())
}

/// The name of an executable that a package brings.
pub(super) fn executable(text: &str) -> Result<String, String> {
    word(text, "._-").then(|| text.to_owned()).ok_or_else(|| "is no name of an executable".to_owned())
}

fn npm(text: &str) -> Option<(String, Option<String>)> {
    // The first `@` may belong to the scope.
    let at = text.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let (name, version) = at.map_or((text, None), |at| (&text[..at], Some(&text[at + 1..])));
    let named = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| word(scope, "._-") && word(name, "._-")),
        None => word(name, "._-"),
    };
    (named && version.is_none_or(is_version)).then(|| (name.to_owned(), version.map(str::to_owned)))
}

fn pypi(text: &str) -> Option<(String, Option<String>)> {
    let split = text.split_once("==").or_else(|| text.split_once('@'));
    let (name, version) = split.map_or((text, None), |(name, version)| (name, Some(version)));
    (pypi_name(name) && version.is_none_or(is_version)).then(|| (name.to_owned(), version.map(str::to_owned)))
}

/// A name of PyPI, with or without extras.
fn pypi_name(text: &str) -> bool {
    let plain = |text: &str| word(text, "._-") && text.ends_with(|c: char| c.is_ascii_alphanumeric());
    match text.split_once('[') {
        Some((name, extras)) => plain(name) && extras.strip_suffix(']').is_some_and(|e| e.split(',').all(plain)),
        None => plain(text),
    }
}

/// `>=1.2`, `<2`, `==1.*`.
fn bound(text: &str) -> bool {
    let version = ["===", "==", ">=", "<=", "~=", "!=", "<", ">"].iter().find_map(|op| text.strip_prefix(op));
    version.is_some_and(|version| word(version, ".+-*"))
}

fn is_version(text: &str) -> bool {
    word(text, ".+-")
}

/// Begins with a letter or digit, and goes on with those and a few more characters.
fn word(text: &str, more: &str) -> bool {
    text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_both_registries() {
        let of = |text: &str| {
            let (_, name, version) = package(text).unwrap();
            (name, version.unwrap_or_default())
        };
        let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
        assert_eq!(of("npx:pkg"), pair("pkg", ""));
        assert_eq!(of("npx:@scope/pkg.x"), pair("@scope/pkg.x", ""));
        assert_eq!(of("npx:@scope/pkg@1.2.3-rc.1+b"), pair("@scope/pkg", "1.2.3-rc.1+b"));
        assert_eq!(of("npx:pkg@latest"), pair("pkg", "latest"));
        assert_eq!(of("uvx:mcp-server-time@2026.8.31"), pair("mcp-server-time", "2026.8.31"));
        assert_eq!(of("uvx:a[b,c]==1.0"), pair("a[b,c]", "1.0"));
    }

    #[test]
    fn what_could_be_anything_else_than_a_package_is_refused() {
        for bad in [
            "pkg",
            "npm:pkg",
            "npx:",
            "npx:-g",
            "npx:--registry=http://x",
            "npx:.",
            "npx:../x",
            "npx:/abs",
            "npx:a/b",
            "npx:@a",
            "npx:@/a",
            "npx:@a/b/c",
            "npx:@a/-b",
            "npx:a@",
            "npx:a@^1",
            "npx:a@b@c",
            "npx:a@npm:b",
            "npx:github:a/b",
            "npx:a b",
            "npx:a;b",
            "npx:a\nRUN x",
            "npx:$(x)",
            "npx:${A}",
            "npx:é",
            "uvx:git+https://t0ken@x/y",
            "uvx:a @ https://x",
            "uvx:a>=1",
            "uvx:a[",
            "uvx:a[]",
            "uvx:a[-b]",
            "uvx:a-",
            "uvx:a==",
            "uvx:a==1;b",
            &format!("npx:{}", "x".repeat(300)),
        ] {
            let said = package(bad).expect_err(bad);
            assert!(!said.contains("t0ken"), "{said}");
        }
    }

    #[test]
    fn requirements_are_restricted_to_names_and_bounds() {
        for good in ["mcp<2", "mcp", "httpx[http2]>=0.27,<1", "a==1.*", "a~=1.4.2", "a!=1"] {
            assert!(requirement(Runner::Uvx, good).is_ok(), "{good}");
        }
        for bad in ["", "-r x", "a @ http://x", "a;python_version<'3'", "a<", "a<2,", "a <2", "../a", "a<2 --x", "a=1"]
        {
            assert!(requirement(Runner::Uvx, bad).is_err(), "{bad}");
        }
        assert!(requirement(Runner::Npx, "zod@3.25.0").is_ok());
        assert!(requirement(Runner::Npx, "zod<4").is_err());
        assert!(executable("mcp-x").is_ok() && executable("../x").is_err() && executable("-x").is_err());
    }
}
