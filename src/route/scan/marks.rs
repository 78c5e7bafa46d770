//! Places where secrets lie, markup that plays a part, and encoded data.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::Suspicion::{self, Blob, Markup, SecretPlace};
use super::folded::Folded;

/// Shorter runs of encoded data are keys and hashes of examples.
const BLOB: usize = 120;

/// Where secrets lie.
const PLACES: &[&str] = &[
    "~/.ssh",
    "/.ssh/",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "authorized_keys",
    "~/.aws",
    ".aws/credentials",
    "~/.config/gcloud",
    "~/.kube",
    ".kube/config",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
    ".docker/config.json",
    "~/.gnupg",
    "/etc/passwd",
    "/etc/shadow",
    "/proc/self/environ",
    "wallet.dat",
    "~/.cursor",
    ".cursor/mcp.json",
    "claude_desktop_config",
    ".bash_history",
    ".zsh_history",
    "cookies.sqlite",
    "login data",
    "keychain-db",
];

/// Markup of a conversation.
const PARTS: &[&str] = &[
    "<important>",
    "</important>",
    "<system>",
    "</system>",
    "<system ",
    "<system_prompt",
    "<system-reminder",
    "<instructions>",
    "</instructions>",
    "<instruction>",
    "<secret>",
    "<hidden>",
    "<critical>",
    "<admin>",
    "<assistant>",
    "<|im_start|>",
    "<|system|>",
    "<|endoftext|>",
    "[/inst]",
    "[inst]",
    "<<sys>>",
    "### system",
    "### instruction",
    "[system]",
    "<s>[",
    "<tool_call>",
    "<function_calls>",
    "\n\nhuman:",
    "begin system prompt",
];

static PLACE: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(PLACES).ok());
static PART: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(PARTS).ok());

pub(super) fn look(text: &Folded<'_>, original: &str, put: &mut impl FnMut(Suspicion, String, usize)) {
    if let Some(found) = PLACE.as_ref().and_then(|all| all.find(&text.text)) {
        put(
            SecretPlace,
            format!("names a place of secrets, {}", PLACES[found.pattern()].trim()),
            text.place(found.start()),
        );
    }
    if let Some(at) = dotenv(&text.text) {
        put(SecretPlace, "names a place of secrets, .env".to_owned(), text.place(at));
    }
    if let Some(found) = PART.as_ref().and_then(|all| all.find(&text.text)) {
        put(Markup, format!("markup of a conversation, {}", PARTS[found.pattern()].trim()), text.place(found.start()));
    }
    if let Some(at) = text.text.find("<!--") {
        put(Markup, "a comment, which is not seen where text is rendered".to_owned(), text.place(at));
    }
    links(original, put);
    if let Some((at, len)) = blob(original) {
        put(Blob, format!("{len} characters of encoded data"), at);
    }
}

/// A file of that name, and not an environment of that name in a program.
fn dotenv(text: &str) -> Option<usize> {
    let edge = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | ')' | ']' | '-' | '('));
    let all = memchr::memmem::find_iter(text.as_bytes(), b".env");
    let mut all = all.filter(|at| edge(text[..*at].chars().next_back()) && edge(text[at + 4..].chars().next()));
    all.next()
}

/// Pictures and links whose address has room for what the model knows.
fn links(text: &str, put: &mut impl FnMut(Suspicion, String, usize)) {
    // Neither way beyond the bracket of another link, so that no text is gone through twice.
    for at in memchr::memmem::find_iter(text.as_bytes(), b"](http") {
        let address = &text[at + 2..];
        let end = address.char_indices().find(|(_, c)| matches!(c, ')' | ' ' | '\n' | ']')).map(|(n, _)| n);
        let Some((_, query)) = end.and_then(|end| address[..end].split_once('?')) else { continue };
        let open =
            text[..at].bytes().rev().take_while(|b| *b != b']').position(|b| b == b'[').map_or(at, |n| at - n - 1);
        let picture = text[..open].ends_with('!');
        if picture && query.contains('=') {
            return put(Markup, "a picture whose address carries data".to_owned(), open.saturating_sub(1));
        }
        if query.contains(['{', '<', '$', '[']) {
            return put(Markup, "a link whose address is filled in with data".to_owned(), open);
        }
    }
}

/// The first long run of base64 or the like: letters of both cases and digits, or hexadecimal digits, without a break.
fn blob(text: &str) -> Option<(usize, usize)> {
    let base = text.as_ptr() as usize;
    let is_code = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-');
    let runs = text.as_bytes().split(|b| !is_code(*b)).filter(|run| run.len() >= BLOB);
    let mut coded = runs.filter(|run| {
        let has = |is: fn(&u8) -> bool| run.iter().any(is);
        has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
    });
    coded.next().map(|run| (run.as_ptr() as usize - base, run.len()))
}
