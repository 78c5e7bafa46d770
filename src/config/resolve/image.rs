//! Image references by their grammar, so that none can be an option or anything else of a command line. Knows no engine.

/// `[HOST[:PORT]/]PATH[:TAG][@sha256:…]`; the text is no part of the error.
pub(super) fn reference(text: &str) -> Result<String, String> {
    if is_reference(text) {
        return Ok(text.to_owned());
    }
    Err("is no image reference such as \"name:tag\" or \"registry.example.org/name@sha256:…\"".to_owned())
}

fn is_reference(text: &str) -> bool {
    let (name, digest) = text.split_once('@').map_or((text, None), |(name, digest)| (name, Some(digest)));
    let path_begin = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name[path_begin..].find(':') {
        Some(colon) => (&name[..path_begin + colon], Some(&name[path_begin + colon + 1..])),
        None => (name, None),
    };
    let mut parts = name.split('/').peekable();
    let host = parts.peek().copied().unwrap_or_default();
    if name.contains('/') && (host.contains(['.', ':']) || host == "localhost") {
        parts.next();
        if !is_host(host) {
            return false;
        }
    }
    text.len() <= 512 && parts.all(is_part) && tag.is_none_or(is_tag) && digest.is_none_or(is_digest)
}

fn is_host(text: &str) -> bool {
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok() && !port.starts_with('+'))
}

/// Lower-case words with single separators between them.
fn is_part(text: &str) -> bool {
    let alnum = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alnum)
        && text.ends_with(alnum)
        && text.chars().all(|c| alnum(c) || "._-".contains(c))
        && !text.contains("..")
}

fn is_tag(text: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128 && text.starts_with(first) && text.chars().all(|c| first(c) || ".-".contains(c))
}

fn is_digest(text: &str) -> bool {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    text.strip_prefix("sha256:").is_some_and(|digest| digest.len() == 64 && digest.chars().all(hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_by_the_grammar() {
        let digest = format!("a@sha256:{}", "0a".repeat(32));
        let id = format!("sha256:{}", "0a".repeat(32));
        for good in
            ["img:1", "bulkhead/python-repl", "ghcr.io/a/b_c:v1.2-x", "localhost:5000/a", "R.example/a", &digest, &id]
        {
            assert!(reference(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            " ",
            "-v",
            "--privileged",
            "img --privileged",
            "img\t1",
            "img\n",
            "Img",
            "a//b",
            "/a",
            "a/",
            "a:",
            "a:-x",
            "a@sha256:00",
            "a@md5:x",
            "a..b",
            "../a",
            "a/../b",
            "http://x/a",
            "x:y:z",
            "-host.x/a",
            "h.x:+1/a",
            "${IMG}",
            "é",
        ] {
            assert!(reference(bad).is_err(), "{bad:?}");
        }
    }
}
