//! What looks like a secret, by the name it has or by itself. Pure; knows nothing of servers.
//!
//! A guess on the safe side: what is taken for a secret without being one costs a variable that has to be set; the other
//! way round, a secret would lie in a second file.

/// What secrets begin with where they come from somebody who marks them.
const PREFIXES: [&str; 48] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "gldt-",
    "sk-",
    "sk_",
    "rk_live_",
    "rk_test_",
    "whsec_",
    "xoxa-",
    "xoxb-",
    "xoxp-",
    "xoxr-",
    "xoxs-",
    "xoxe-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "hf_",
    "dop_v1_",
    "SG.",
    "shpat_",
    "shpss_",
    "sq0atp-",
    "sq0csp-",
    "lin_api_",
    "ntn_",
    "secret_",
    "figd_",
    "tvly-",
    "gsk_",
    "pplx-",
    "r8_",
    "sntrys_",
    "sntryu_",
    "dapi",
    "patx",
    "eyJ",
    "ops_",
    "fc-",
];

/// Shorter rests after a prefix are words.
const LEAST_REST: usize = 10;

/// From this length on, letters and digits in no order are a key of something.
const LEAST_RANDOM: usize = 20;

/// Bits a character from which an order is none: random hex has 3.5 at 32 characters, words with numbers less.
const LEAST_ENTROPY: f64 = 3.2;

/// The same where other characters than letters and digits are among them.
const LEAST_MIXED: usize = 24;
/// Changes of the kind of character in these; names and paths have one a word.
const LEAST_CHANGES: usize = 8;
/// Length of a cloud's keys that have slashes in them.
const KEY: usize = 40;

/// Parts of names that say that it is one.
const TELLING: [&str; 12] = [
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "COOKIE",
    "APIKEY",
    "BEARER",
    "PRIVATEKEY",
    "ACCESSKEY",
    "CONNECTIONSTRING",
];

/// Whole words of names that say so.
const WORDS: [&str; 11] =
    ["CREDS", "KEY", "KEYS", "PASS", "AUTH", "AUTHORIZATION", "DSN", "PAT", "PWD", "JWT", "SIGNATURE"];

/// Last words of names of things about a secret that are none.
const ABOUT: [&str; 28] = [
    "FILE", "PATH", "TYPE", "MODE", "DIR", "NAME", "LIMIT", "METHOD", "PROVIDER", "ENABLED", "COUNT", "HOST", "PORT",
    "REGION", "TTL", "TIMEOUT", "URL", "URI", "ENDPOINT", "ISSUER", "SCOPE", "SCOPES", "USER", "USERNAME", "LENGTH",
    "SIZE", "DOMAIN", "AUDIENCE",
];

/// Whether a variable, header, option or parameter of that name holds a secret.
pub(super) fn named(name: &str) -> bool {
    let words = words(name);
    let whole = words.concat();
    let Some(last) = words.last() else { return false };
    let counted =
        whole.contains("TOKENS") && words.iter().any(|word| ["MAX", "MIN", "NUM", "BUDGET"].contains(&&**word));
    if ABOUT.contains(&last.as_str()) || counted || whole.contains("TOKENIZ") || whole == "PWD" {
        return false;
    }
    let word = |word: &String| WORDS.contains(&word.as_str()) || word.ends_with("KEY") || word.ends_with("PASS");
    TELLING.iter().any(|part| whole.contains(part)) || words.iter().any(word)
}

/// The words of a name, in capitals: `apiKey`, `api-key` and `API_KEY` have the same.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if c.is_alphanumeric() {
            words.last_mut().into_iter().for_each(|word| word.extend(c.to_uppercase()));
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a text holds what looks like a secret, whatever its name is. References (`${…}`) are none.
pub(super) fn held(text: &str) -> bool {
    let bare = &literal(text);
    marked(bare) || random(bare) || mixed(bare) || in_address(bare) || assigned(bare) || defaulted(text)
}

/// `${NAME:-value}`, where the name says that the value is a secret.
fn defaulted(text: &str) -> bool {
    let inside = text.split("${").skip(1).filter_map(|part| part.split_once('}'));
    inside.filter_map(|(inside, _)| inside.split_once(":-")).any(|(name, default)| named(name) && !default.is_empty())
}

/// Whether a text holds what is marked as a secret by those who made it: a known beginning, a key, a password in an
/// address.
pub(super) fn marked(text: &str) -> bool {
    let part = |c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c));
    let known = |token: &str| {
        PREFIXES.iter().any(|prefix| {
            let rest = token.strip_prefix(prefix).unwrap_or_default();
            rest.len() >= LEAST_REST && rest.contains(|c: char| c.is_ascii_digit())
        })
    };
    text.split(part).any(known) || text.contains("-----BEGIN") || in_address(text)
}

/// Letters and digits in no order.
fn random(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '+').any(|token| {
        token.len() >= LEAST_RANDOM
            && token.contains(|c: char| c.is_ascii_digit())
            && token.contains(|c: char| c.is_ascii_alphabetic())
            && entropy(token) >= LEAST_ENTROPY
    })
}

/// The same where `-` and `_` are letters, as in URLs, or `/` and `+` are and the length is that of a key: only where
/// small letters, capitals and digits are mixed as no name or path mixes them.
fn mixed(text: &str) -> bool {
    let all = |token: &str| {
        let has = |class: fn(&char) -> bool| token.chars().filter(class).count();
        has(char::is_ascii_lowercase) > 2 && has(char::is_ascii_uppercase) > 2 && has(char::is_ascii_digit) > 1
    };
    let url = text.split(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c));
    let key = text.split(|c: char| !c.is_ascii_alphanumeric() && !"/+".contains(c));
    url.filter(|token| token.len() >= LEAST_MIXED)
        .chain(key.filter(|token| token.len() == KEY && !token.starts_with('/')))
        .any(|token| all(token) && changes(token) >= LEAST_CHANGES)
}

/// How often one kind of character follows another: in words and numbers a few times, in a key all the time.
fn changes(text: &str) -> usize {
    let kind = |b: &u8| (b.is_ascii_lowercase(), b.is_ascii_uppercase(), b.is_ascii_digit());
    let alike = |b: &u8| b.is_ascii_alphanumeric();
    text.as_bytes().windows(2).filter(|w| w.iter().all(alike) && kind(&w[0]) != kind(&w[1])).count()
}

/// Bits a character.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let share = |count: &u32| f64::from(*count) / text.len() as f64;
    counts.iter().filter(|count| **count > 0).map(share).map(|share| -share * share.log2()).sum()
}

/// `scheme://user:password@host`, and `https://token@host`.
fn in_address(text: &str) -> bool {
    text.match_indices("://").any(|(at, _)| {
        let scheme = text[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c)).next();
        let rest = &text[at + 3..];
        let end = rest.find(|c: char| "/?#\"' ".contains(c) || c.is_whitespace()).unwrap_or(rest.len());
        let Some((user, _)) = rest[..end].rsplit_once('@') else {
            // A password with a slash in it: there is no host before an `@` later on.
            return rest.split(char::is_whitespace).next().is_some_and(|rest| odd_password(rest, end));
        };
        match user.split_once(':') {
            Some((_, password)) => !password.is_empty(),
            None => {
                scheme.is_some_and(|scheme| scheme.starts_with("http") || scheme.starts_with("ws")) && !user.is_empty()
            }
        }
    })
}

/// Whether what ends at the first slash is `user:pass` rather than `host:port`, and an `@` comes later.
fn odd_password(rest: &str, end: usize) -> bool {
    let port = rest[..end.min(rest.len())].rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| port.contains(|c: char| !c.is_ascii_digit()) && !port.contains(']'))
        && rest[end.min(rest.len())..].contains('@')
}

/// `NAME=VALUE`, `"name": "value"`, `?name=value`, where the name says that the value is a secret.
fn assigned(text: &str) -> bool {
    text.match_indices(['=', ':']).any(|(at, _)| {
        let name = text[..at].trim_end().trim_end_matches(['"', '\'', '\\']);
        let name = name.rsplit(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c)).next().unwrap_or_default();
        let value = text[at + 1..].trim_start_matches(|c: char| c.is_whitespace() || "\"'\\".contains(c));
        let value = without_scheme(value);
        let end = value.find(|c: char| "&;,\"'}".contains(c) || c.is_whitespace()).unwrap_or(value.len());
        // A variable of that name alone is a shell's; a parameter is a password.
        (named(name) || name.eq_ignore_ascii_case("pwd")) && end > 0 && !value.starts_with("//")
    })
}

/// A text without its references, with what would stand in for them: that is copied, too.
pub(super) fn literal(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, inside)) = rest.split_once("${") {
        out.push_str(before);
        let (inside, after) = inside.split_once('}').unwrap_or((inside, ""));
        out.extend(inside.split_once(":-").map(|(_, default)| default));
        rest = after;
    }
    out + rest
}

/// What is left of the value of a header without the word for how it authenticates.
pub(super) fn without_scheme(text: &str) -> &str {
    let text = text.trim();
    let scheme = ["bearer", "basic", "token"].into_iter().find(|scheme| {
        let begins = text.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
        begins && text[scheme.len()..].chars().next().is_none_or(char::is_whitespace)
    });
    scheme.map_or(text, |scheme| text[scheme.len()..].trim())
}

/// Whether a secret can be told from ordinary words wherever it stands.
pub(super) fn telling(text: &str) -> bool {
    let classes: [fn(char) -> bool; 4] = [
        |c| c.is_lowercase(),
        |c| c.is_uppercase(),
        |c| c.is_ascii_digit(),
        |c| !c.is_alphanumeric() && !c.is_whitespace(),
    ];
    held(text) || (text.len() >= 8 && classes.iter().filter(|class| text.contains(**class)).count() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets() {
        for secret in [
            "API_KEY",
            "GITHUB_PERSONAL_ACCESS_TOKEN",
            "apiKey",
            "api-key",
            "--token",
            "DB_PASSWORD",
            "PGPASSWORD",
            "Pass",
            "Authorization",
            "X-Api-Key",
            "SENTRY_DSN",
            "SESSION_COOKIE",
            "AWS_ACCESS_KEY_ID",
            "MY_CREDENTIALS",
            "MYKEY",
            "GITLAB_PAT",
            "clientSecret",
            "CREDS",
        ] {
            assert!(named(secret), "{secret}");
        }
        for plain in [
            "HOME",
            "AUTHOR",
            "MAX_TOKENS",
            "TOKEN_LIMIT",
            "SSH_KEY_PATH",
            "AUTH_TYPE",
            "TOKEN_URL",
            "PWD",
            "PATTERN",
            "TOKENIZERS_PARALLELISM",
            "PATH",
            "keyboard",
            "",
            "-",
            "--port",
        ] {
            assert!(!named(plain), "{plain}");
        }
    }

    #[test]
    fn texts_that_hold_secrets() {
        let made = |parts: &[&str]| parts.concat();
        for secret in [
            made(&["ghp", "_abcdefghij0123456789abcdefghij012345"]),
            made(&["x sk", "-proj-abcdefgh1234 y"]),
            made(&["xox", "b-123456789012-abcdef"]),
            made(&["AKI", "AIOSFODNN7EXAMPLE"]),
            made(&["ey", "JhbGciOiJIUzI1NiJ9.e30.abc"]),
            made(&["-----BEGIN ", "OPENSSH KEY-----"]),
            "postgres://me:pw@h/db".into(),
            "postgres://me:p/w:@h/db".into(),
            "https://t0ken@h/x".into(),
            "Server=h;Password=pw;".into(),
            "{\"apiKey\": \"x\"}".into(),
            "https://h/?api_key=x".into(),
            "Authorization: Bearer x".into(),
            "0123456789abcdef0123456789abcdef".into(),
            "https://h/s/q8ZkT1mXw0bR5vNc3LpY7/mcp".into(),
            "${A:-0123456789abcdef0123456789abcdef}".into(),
            "${DB_PASSWORD:-hunter2}".into(),
            "Server=h;User=u;Pwd=pw;".into(),
            "wss://t0ken@h/x".into(),
            "x wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".replace("EXAMPLEKEY", "3xAmPl3K3Y"),
            "Zk8-qWm_3Lr7Tb9-XcV5nP2_dH".into(),
        ] {
            assert!(held(&secret), "{secret}");
        }
        for plain in [
            "",
            "UTC",
            "/home/me/a-project-2024/notes",
            "https://h:8080/mcp",
            "@scope/server-sequential-thinking@2025.7.1",
            "claude-3-5-sonnet-20241022",
            "asia-northeast1-b",
            "Authorization: Bearer ${TOKEN}",
            "${API_KEY}",
            "--verbose",
            "user@example.org",
            "postgres://me@h/db",
            "postgres://h:5432/a@b",
            "123456789012345678901234",
            "a=b",
            "sk-learn",
            "task-force",
            "/Users/Alice/Documents/2024-Report_Final/v2",
            "C:\\Users\\Alice\\My-Projects_2024",
            "My-Server_Configuration-2024-Final",
            "PWD_FILE=/run/x",
            "${REGION:-eu-central-1}",
        ] {
            assert!(!held(plain), "{plain}");
        }
    }

    #[test]
    fn secrets_that_are_ordinary_words_are_not_looked_for_elsewhere() {
        assert!(telling("hunter2!") && telling("your-api-key"));
        assert!(!telling("postgres") && !telling("x1"));
    }
}
