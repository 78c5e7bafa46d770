//! What the lock file promises to those who review it.

use std::fs;

use super::*;
use crate::error::Class;

const IMAGE: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn tool(definition: &str) -> Definition {
    Definition::new(Kind::Tool, &raw(definition)).unwrap()
}

fn server(tools: &[&str]) -> LockedServer {
    LockedServer {
        kind: "image".to_owned(),
        image: Some(IMAGE.to_owned()),
        config: "c0".to_owned(),
        revision: "2025-11-25".to_owned(),
        capabilities: raw("{}"),
        tools: tools.iter().map(|text| tool(text)).collect(),
        ..LockedServer::default()
    }
}

/// Spellings that a reader with its own idea of JSON would lose.
const ODD: &str =
    r#"{"z":1e400,"name":"odd","a":-0.0,"a":1.10,"description":"\ud800 \u00e9é\/\u2028 ","deep":[[[{}]]]}"#;

fn sample() -> Lock {
    let time = LockedServer {
        kind: "package".to_owned(),
        package: Some("uvx:mcp-server-time".to_owned()),
        version: Some("2026.10.19".to_owned()),
        integrity: Some("sha256:5c09".to_owned()),
        content: Some("c0ffee".to_owned()),
        settings: [("network", "none"), ("memory", "512m")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        capabilities: raw("{ \"tools\":\n {}}"),
        instructions: Some("say \"when\"\n".to_owned()),
        prompts: vec![Definition::new(Kind::Prompt, &raw("{\"name\":\"now\"}")).unwrap()],
        templates: vec![Definition::new(Kind::Template, &raw("{\"uriTemplate\":\"t://{z}\",\"name\":\"z\"}")).unwrap()],
        tree: vec![raw("{\"name\":\"mcp\",\n\"version\":\"1.0\"}"), raw("{\"name\":\"tzdata\"}")],
        ..server(&[r#"{"name":"now"}"#, ODD])
    };
    let host = LockedServer { kind: "unisolated".to_owned(), image: None, ..server(&[]) };
    Lock { servers: BTreeMap::from([("time".to_owned(), time), ("My.Srv (dev)".to_owned(), host)]) }
}

fn refused(text: &str) -> String {
    let fault = Lock::parse(text, "bulkhead.lock").unwrap_err();
    assert_eq!(fault.class, Class::Usage);
    assert!(fault.outward.starts_with("bulkhead.lock: "), "{fault}");
    fault.outward
}

#[test]
fn the_file_is_what_people_review() {
    let golden = include_str!("golden.lock");
    assert_eq!(sample().to_text(), golden);
    let read = Lock::parse(golden, "x").unwrap();
    assert_eq!(read.to_text(), golden);
    assert_eq!(read.servers["time"].tool("odd").unwrap().definition.get(), ODD);
    assert_eq!(Lock::default().to_text(), "{\n  \"version\": 2,\n  \"servers\": {}\n}\n");
    assert_eq!(Lock::parse(&Lock::default().to_text(), "x").unwrap(), Lock::default());
}

#[test]
fn a_line_break_between_tokens_is_the_only_thing_that_changes() {
    let broken = tool("{\"name\":\r\n\"a\\n\",\n\"b\": [1,\n2]}");
    assert_eq!(broken.definition.get(), "{\"name\":  \"a\\n\", \"b\": [1, 2]}");
    assert_eq!(broken.name, "a\n");
    assert_eq!(broken, tool(broken.definition.get()));
}

#[test]
fn a_definition_without_one_name_is_none() {
    for text in ["{}", "[]", "1", r#"{"name":1}"#, r#"{"name":"a","name":"b"}"#, r#"{"name":"a","n\u0061me":"b"}"#] {
        assert!(Definition::new(Kind::Tool, &raw(text)).is_err(), "{text}");
    }
}

#[test]
fn what_was_edited_by_hand_is_refused_with_its_place() {
    let text = sample().to_text();
    let edited = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}");
        refused(&text.replacen(from, to, 1))
    };
    let place = "servers.\"time\".tools.\"odd\": ";
    assert!(edited("1e400", "1e401").contains(&format!("{place}the hash does not fit")));
    assert!(
        edited("\"name\":\"odd\",\"hash\"", "\"name\":\"even\",\"hash\"").contains("tools.\"even\": the definition is")
    );
    let first = text.lines().find(|line| line.contains("\"now\"")).unwrap();
    assert!(edited(&format!("{first}\n"), "").contains("servers.\"time\": offer_hash does not fit"));
    let of_tree = "servers.\"time\": tree_hash does not fit";
    assert!(edited("        {\"name\":\"mcp\", \"version\":\"1.0\"},\n", "").contains(of_tree));
    assert!(edited("say ", "never say ").contains("offer_hash does not fit"));
    assert!(edited("\"capabilities\": { \"tools\":", "\"capabilities\": { \"tasks\":").contains("offer_hash"));
    assert!(
        edited("t://{z}\",\"hash", "t://{y}\",\"hash")
            .contains("templates.\"t://{y}\": the definition is of a resource")
    );
    assert!(edited("sha256:0123", "sha256:012").contains("is no identity of an image"));
    assert!(edited("\"kind\": \"package\"", "\"kind\": \"packet\"").contains("kind \"packet\" is none of"));
    assert!(edited(&format!("      \"image\": \"{IMAGE}\",\n"), "").contains("servers.\"time\": it has no image"));
    assert!(edited("      \"package\": \"uvx:mcp-server-time\",\n", "").contains("names no package"));
}

#[test]
fn what_is_unknown_or_twice_is_refused_with_its_line() {
    let text = sample().to_text();
    let edited = |from: &str, to: &str| refused(&text.replacen(from, to, 1));
    for (from, to, says) in [
        ("\"version\": 2", "\"version\": 3", "version 3 is not one that this program reads"),
        ("\"version\": 2,", "", "missing field `version`"),
        (
            "\"version\": 2,",
            "\"version\": 2, \"more\": 1,",
            "unknown field `more`, expected `version` or `servers` at line 2",
        ),
        ("\"kind\"", "\"kin\"", "unknown field `kin`"),
        ("\"name\":\"now\",", "\"name\":\"now\",\"x\":1,", "unknown field `x`"),
        ("\"config\"", "\"config\": \"\", \"config\"", "duplicate field `config` at line 6"),
        ("\"time\"", "\"My.Srv (dev)\"", "duplicate key \"My.Srv (dev)\" at line 13"),
        ("\"servers\"", "<<<<<<< ours\n\"servers\"", "at line 3"),
    ] {
        let told = edited(from, to);
        assert!(told.contains(says), "{to}: {told}");
    }
}

#[test]
fn the_file_is_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bulkhead.lock");
    assert_eq!(Lock::read(&path).unwrap(), None);
    sample().write(&path).unwrap();
    assert_eq!(Lock::read(&path).unwrap(), Some(sample()));
    let twice = Lock { servers: BTreeMap::from([("s".to_owned(), server(&[r#"{"name":"a"}"#; 2]))]) };
    let fault = twice.write(&path).unwrap_err();
    assert_eq!(fault.class, Class::Malformed);
    assert_eq!(fault.outward, "cannot lock servers.\"s\": two of its tools are named \"a\"");
    assert_eq!(Lock::read(&path).unwrap(), Some(sample()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(sample().write(&folder.path().join("absent/bulkhead.lock")).is_err());
    fs::write(&path, b"\xff").unwrap();
    assert_eq!(Lock::read(&path).unwrap_err().class, Class::Usage);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_its_place_holds_nobody_up_and_one_that_others_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bulkhead.lock");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
    assert!(Lock::read(&path).unwrap_err().outward.ends_with("is no regular file"));
    fs::remove_file(&path).unwrap();
    sample().write(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(Lock::read(&path).unwrap_err().outward.contains("chmod o-w"));
}

#[cfg(unix)]
#[test]
fn it_can_be_read_by_all_and_a_link_stays_one() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("real.lock"), folder.path().join("bulkhead.lock"));
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real.lock", &link).unwrap();
    sample().write(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(Lock::read(&path).unwrap(), Some(sample()));
}

/// Small, seeded, and good enough to reach every branch of the writer.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn text(&mut self) -> String {
        const PIECES: [&str; 12] = ["a", "Z", "\"", "\\", "\n", "\r", "\u{0}", "é", "\u{2028}", "\u{1f600}", " ", "{"];
        (0..self.roll(6)).map(|_| PIECES[self.roll(PIECES.len())]).collect()
    }

    fn blank(&mut self) -> &'static str {
        ["", "", " ", "\n", "\r\n", "\t"][self.roll(6)]
    }

    fn json(&mut self, depth: usize) -> String {
        const ATOMS: [&str; 9] =
            ["null", "true", "-0", "1e400", "1.10", "12345678901234567890123", r#""\ud800""#, r#""\u0041""#, "{}"];
        let blank = self.blank();
        match self.roll(if depth == 0 { 2 } else { 4 }) {
            0 => format!("{blank}{}{blank}", ATOMS[self.roll(ATOMS.len())]),
            1 => serde_json::to_string(&self.text()).unwrap(),
            2 => format!("[{}]", self.several(depth, |dice, depth| dice.json(depth))),
            _ => format!(
                "{{{}}}",
                self.several(depth, |dice, depth| format!("\"k\"{}:{}", dice.blank(), dice.json(depth)))
            ),
        }
    }

    fn several(&mut self, depth: usize, one: impl Fn(&mut Dice, usize) -> String) -> String {
        let values: Vec<String> = (0..self.roll(4)).map(|_| one(self, depth - 1)).collect();
        values.join(",")
    }

    fn maybe(&mut self) -> Option<String> {
        (self.roll(2) == 0).then(|| self.text())
    }

    fn server(&mut self) -> LockedServer {
        let named = |dice: &mut Dice, at: usize| {
            let name = serde_json::to_string(&format!("{}{at}", dice.text())).unwrap();
            format!("{{\"x\":{},\"name\":{name},{}\"y\":{}}}", dice.json(3), dice.blank(), dice.json(2))
        };
        let tools: Vec<String> = (0..self.roll(5)).map(|at| named(self, at)).collect();
        let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
        LockedServer {
            kind: "remote".to_owned(),
            package: self.maybe(),
            version: self.maybe(),
            integrity: self.maybe(),
            image: (self.roll(2) == 0).then(|| IMAGE.to_owned()),
            config: self.text(),
            revision: self.text(),
            content: self.maybe(),
            settings: (0..self.roll(3)).map(|at| (format!("{}{at}", self.text()), self.text())).collect(),
            instructions: self.maybe(),
            tree: (0..self.roll(3)).map(|_| one_line(&raw(self.json(2).trim()))).collect(),
            capabilities: one_line(&raw(self.json(3).trim())),
            ..server(&tools)
        }
    }
}

#[test]
fn whatever_is_locked_is_read_back_byte_for_byte() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for round in 0..500 {
        let servers = (0..dice.roll(4)).map(|at| (format!("{}{at}", dice.text()), dice.server())).collect();
        let lock = Lock { servers };
        let text = lock.to_text();
        let read = Lock::parse(&text, "x").unwrap_or_else(|fault| panic!("round {round}: {fault}\n{text}"));
        assert_eq!(read, lock, "round {round}");
        assert_eq!(read.to_text(), text, "round {round}");
        let lines = 4 + lock.servers.values().map(|s| s.tools.len()).sum::<usize>();
        assert!(text.lines().count() >= lines, "round {round}");
    }
}
