//! What a review tells of each way in which a server can differ.

use proptest::prelude::*;

use super::testing::{after, package, raw, server, tool};
use super::*;

const READ: &str = r#"{"name":"read","description":"Read one file.","inputSchema":{"type":"object","properties":{"path":{"type":"string","description":"Where it is."}}}}"#;

/// How one definition differs from another of the same name.
fn change(before: &str, now: &str) -> Option<Change> {
    let review = Review::of(Some(&server(&[before])), &server(&[now]));
    assert_eq!(review.is_unchanged(), before == now, "{before} {now}");
    assert_eq!(review.items.is_empty(), before == now, "{before} {now}");
    review.items.into_iter().next().map(|item| item.change)
}

/// The members that differ, as `path: before -> now`.
fn members(before: &str, now: &str) -> Vec<String> {
    let Some(Change::Changed(members)) = change(before, now) else { panic!("{before} {now}") };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "()".to_owned());
    members.all.iter().map(|m| format!("{}: {} -> {}", m.path, text(&m.before), text(&m.now))).collect()
}

fn facts(change: impl FnOnce(&mut LockedServer)) -> Vec<Fact> {
    let before = server(&[READ]);
    Review::of(Some(&before), &after(&before, change)).facts
}

fn weight(change: impl FnOnce(&mut LockedServer)) -> Weight {
    let all = facts(change);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].weight
}

#[test]
fn the_same_is_unchanged_and_nothing_before_is_new() {
    let one = server(&[READ]);
    let review = Review::of(Some(&one), &one.clone());
    assert!(review.is_unchanged() && review.summary() == "unchanged");
    let review = Review::of(None, &one);
    assert_eq!((review.state, review.summary().as_str()), (State::New, "new: 1 tool"));
    assert!(review.facts.iter().any(|fact| fact.what == "network" && fact.now.as_deref() == Some("none")));
    assert!(matches!(&review.items[0].change, Change::Added { parameters, .. } if *parameters == ["path"]));
}

#[test]
fn a_hash_that_changes_alone_is_alarming() {
    let other = || Some("sha512-b".to_owned());
    assert_eq!(weight(|s| s.integrity = other()), Weight::Alarm);
    assert_eq!(weight(|s| s.integrity = None), Weight::Alarm);
    assert_eq!(weight(|s| s.content = other()), Weight::Alarm);
    let both = facts(|s| (s.version, s.integrity) = (Some("1.3.0".to_owned()), other()));
    assert!(both.iter().all(|fact| fact.weight == Weight::Plain), "{both:?}");
    let before = server(&[READ]);
    let review = Review::of(Some(&before), &after(&before, |s| s.integrity = other()));
    assert_eq!(review.summary(), "changed: integrity ALONE");
    let review = Review::of(Some(&before), &after(&before, |s| s.version = Some("1.3.0".to_owned())));
    assert_eq!(review.summary(), "changed: version 1.2.0 -> 1.3.0");
}

#[test]
fn what_lets_a_server_do_more_is_marked() {
    let cases = [
        ("network", "none", "bridge", true),
        ("network", "bridge", "none", false),
        ("network", "none", "api.example.org:443", true),
        ("network", "a.example:443, b.example:443", "b.example:443", false),
        ("network", "a.example:443", "a.example:443, host port 5432", true),
        ("network", "a.example:443", "bridge", true),
        ("memory", "512m", "1g", true),
        ("memory", "1g", "512m", false),
        ("cpus", "0.5", "1", true),
        ("pids", "256", "64", false),
        ("share", "principal", "all", true),
        ("share", "principal", "session", false),
        ("mounts", "/a at /a (read)", "/a at /a (written to)", true),
        ("mounts", "/a at /a (written to)", "/a at /a (read)", false),
        ("mounts", "/a at /a (read)", "/a at /a (read), /b at /b (read)", true),
        ("mounts", "/a at /a (read), /b at /b (read)", "/a at /a (read)", false),
        ("args", "1; sha256:a", "2; sha256:b", false),
    ];
    for (key, was, is, wider) in cases {
        let with = |value: &str| after(&server(&[]), |s| drop(s.settings.insert(key.to_owned(), value.to_owned())));
        let review = Review::of(Some(&with(was)), &with(is));
        assert_eq!(review.facts.len(), 1);
        assert_eq!(review.facts[0].weight == Weight::Wider, wider, "{key}: {was} -> {is}");
    }
    assert_eq!(weight(|s| drop(s.settings.insert("mounts".to_owned(), "/a at /a (read)".to_owned()))), Weight::Wider);
    assert_eq!(weight(|s| drop(s.settings.insert("writable_root".to_owned(), "true".to_owned()))), Weight::Wider);
    assert_eq!(weight(|s| drop(s.settings.remove("memory"))), Weight::Wider);
    assert_eq!(weight(|s| s.kind = "unisolated".to_owned()), Weight::Wider);
}

#[test]
fn a_configuration_that_differs_is_told_even_if_no_setting_shows_it() {
    let all = facts(|s| s.config = "e".repeat(64));
    assert_eq!((all[0].what.as_str(), all.len()), ("configuration", 1));
    let both = facts(|s| {
        s.config = "e".repeat(64);
        s.settings.insert("pids".to_owned(), "64".to_owned());
    });
    assert_eq!((both[0].what.as_str(), both.len()), ("pids", 1));
}

#[test]
fn capabilities_and_instructions_are_told_member_by_member() {
    let before = server(&[]);
    let now = after(&before, |s| {
        s.capabilities = raw(r#"{"tools":{"listChanged":false},"sampling":{}}"#);
        s.instructions = Some("Be\u{202e} kind.".to_owned());
    });
    let review = Review::of(Some(&before), &now);
    let paths: Vec<&str> = review.says.all.iter().map(|member| member.path.as_str()).collect();
    assert_eq!(paths, ["capabilities.tools.listChanged", "capabilities.sampling", "instructions"]);
    assert_eq!(review.says.all[2].now.as_deref(), Some("Be\\u{202e} kind."));
    let spelled = after(&before, |s| s.capabilities = raw(r#"{ "tools":{"listChanged":true}}"#));
    assert!(!Review::of(Some(&before), &spelled).is_unchanged());
    let broken = |c: char| after(&before, |s| s.capabilities = raw(&format!("{{{c}\"tools\":{{}}}}")));
    let review = Review::of(Some(&broken(' ')), &broken('\n'));
    assert!(review.is_unchanged() && review.says.is_empty(), "{review:?}");
}

#[test]
fn the_tree_is_told_by_names_and_a_replaced_package_apart() {
    let tree = |all: &[(&str, &str, &str)]| -> Vec<_> { all.iter().map(|(n, v, h)| package(n, v, h)).collect() };
    let before = tree(&[("a", "1", "x"), ("b", "1", "x"), ("b", "2", "x"), ("c", "1", "x"), ("d", "1", "x")]);
    let now = tree(&[("a", "1", "x"), ("b", "2", "x"), ("b", "3", "x"), ("d", "1", "y"), ("e", "1", "x")]);
    let found = Tree::between(&before, &now);
    assert_eq!(found.added, ["e 1"]);
    assert_eq!(found.removed, ["c 1"]);
    assert_eq!(found.replaced, ["d 1"]);
    assert_eq!(found.changed, [Bump { name: "b".into(), before: "1, 2".into(), now: "2, 3".into() }]);
    assert!(Tree::between(&before, &before).is_empty());
    let mut turned = tree(&[("a", "1", "x"), ("b", "1", "x")]);
    turned.reverse();
    assert!(Tree::between(&tree(&[("a", "1", "x"), ("b", "1", "x")]), &turned).reordered);
}

#[test]
fn a_definition_is_told_by_the_members_that_differ() {
    let now = READ.replace("Where it is.", "Where it is, and why.").replace("Read one", "Read\\u0020two");
    assert_eq!(
        members(READ, &now),
        [
            "description: Read one file. -> Read two file.",
            "inputSchema.properties.path.description: Where it is. -> Where it is, and why.",
        ]
    );
    let optional = READ.replace(r#""path":{"#, r#""a.b":{"default":"1"},"path":{"#);
    assert_eq!(members(READ, &optional), [r#"inputSchema.properties["a.b"].default: () -> "1""#]);
    assert_eq!(members(&optional, READ), [r#"inputSchema.properties["a.b"].default: "1" -> ()"#]);
}

#[test]
fn numbers_and_members_that_come_twice_are_not_lost() {
    let with = |members: &str| format!(r#"{{"name":"n",{members}}}"#);
    assert_eq!(members(&with(r#""x":1"#), &with(r#""x":1.0"#)), ["x: 1 -> 1.0"]);
    assert_eq!(members(&with(r#""x":1"#), &with(r#""x":"1""#)), [r#"x: 1 -> "1""#]);
    assert_eq!(members(&with(r#""x":1"#), &with(r#""x":1,"x":2"#)), ["x#2: () -> 2"]);
    assert_eq!(members(&with(r#""x":1,"x":2"#), &with(r#""x":2,"x":1"#)), ["x: 1 -> 2", "x#2: 2 -> 1"]);
    assert_eq!(members(&with(r#""x":[]"#), &with(r#""x":{}"#)).len(), 1);
    assert_eq!(members(&with(r#""x":"\ud800""#), &with(r#""x":"\ud801""#)).len(), 1);
    let deep = |leaf: &str| with(&format!(r#""x":{}{leaf}{}"#, "[".repeat(500), "]".repeat(500)));
    assert_eq!(members(&deep("1"), &deep("2")).len(), 1);
}

#[test]
fn order_and_spelling_are_told_apart_from_meaning() {
    let with = |members: &str| format!(r#"{{"name":"n",{members}}}"#);
    assert_eq!(
        change(&with(r#""a":1,"b":{"c":1,"d":2}"#), &with(r#""b":{"d":2,"c":1},"a":1"#)),
        Some(Change::Reordered)
    );
    assert_eq!(change(&with(r#""a":"é""#), &with(r#""a":"\u00e9""#)), Some(Change::Respelled));
    assert_eq!(change(&with(r#""a":1"#), &with(r#""a": 1"#)), Some(Change::Respelled));
    // What an array says is a matter of its order.
    assert_eq!(members(&with(r#""a":["x","y"]"#), &with(r#""a":["y","x"]"#)), [r#"a: ["x", "y"] -> ["y", "x"]"#]);
}

#[test]
fn arguments_are_known_by_their_names() {
    let with = |all: &str| format!(r#"{{"name":"n","arguments":[{all}]}}"#);
    let (a, b) = (r#"{"name":"a","required":true}"#, r#"{"name":"b"}"#);
    let found = members(&with(b), &with(&format!("{a},{b}")));
    assert_eq!(found, ["arguments.a.name: () -> a", "arguments.a.required: () -> true"]);
    let found = members(&with(&format!("{a},{b}")), &with(&format!("{b},{a}")));
    assert_eq!(found, [r#"arguments (order): ["a", "b"] -> ["b", "a"]"#]);
}

#[test]
fn tools_that_come_go_or_move_are_told() {
    let names = |names: &[&str]| {
        let all: Vec<String> = names.iter().map(|name| format!(r#"{{"name":"{name}"}}"#)).collect();
        server(&all.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let review = Review::of(Some(&names(&["a", "b", "c"])), &names(&["c", "a", "d"]));
    let found: Vec<_> = review.items.iter().map(|item| (item.name.as_str(), item.change == Change::Removed)).collect();
    assert_eq!(found, [("d", false), ("b", true)]);
    assert_eq!(review.moved, [Kind::Tool]);
    assert_eq!(review.summary(), "changed: 1 tool added, 1 tool removed, order of tools");
    assert!(!Review::of(Some(&names(&["a", "b"])), &names(&["b", "a"])).is_unchanged());
}

#[test]
fn one_word_of_a_long_text_is_shown_as_that() {
    let long = "Reads the whole of a file and returns it as text. ".repeat(100);
    let found = pieces(&long, &long.replacen("whole", "half", 1));
    assert_eq!(found[1..3], [Piece::Removed("whole".into()), Piece::Added("half".into())]);
    assert_eq!(found.len(), 4);
    let blob = "A1b2".repeat(1000);
    let found = pieces(&blob, &format!("{}X{}", &blob[..2000], &blob[2000..]));
    assert_eq!(found[1], Piece::Added("X".into()));
}

#[test]
fn what_looks_the_same_is_told_apart() {
    let found = pieces("pay the cop", "pаy the сор");
    let added: Vec<_> = found.iter().filter(|piece| matches!(piece, Piece::Added(_))).collect();
    let expected = [&Piece::Added("p\\u{430}y".into()), &Piece::Added("\\u{441}\\u{43e}\\u{440}".into())];
    assert_eq!(added, expected, "{found:?}");
    assert_eq!(pieces("x", "pаy")[1], Piece::Added("p\\u{430}y".into()));
    let found = pieces(&exact("a\u{200b}b"), &exact("a\u{200c}b"));
    let expected = [Piece::Removed("\\u{200b}".into()), Piece::Added("\\u{200c}".into())];
    assert!(found.windows(2).any(|pair| pair == expected), "{found:?}");
}

#[test]
fn an_amount_of_differences_has_an_end() {
    let many = |n: usize| {
        let all: Vec<String> = (0..20_000).map(|k| format!(r#""k{k}":{}"#, k * n)).collect();
        format!(r#"{{"name":"n",{}}}"#, all.join(","))
    };
    let Some(Change::Changed(found)) = change(&many(1), &many(2)) else { panic!() };
    assert_eq!(found.all.len() + found.more, 19_999);
    assert!(found.more > 0);
    let words = |word: &str| word.repeat(200_000);
    assert_eq!(pieces(&words("a "), &words("b ")).len(), 2 + 1);
}

#[test]
fn a_name_cannot_hide_either() {
    let review = Review::of(
        Some(&server(&[])),
        &after(&server(&[]), |s| s.tools = vec![tool("{\"name\":\"a\u{202e}\\u001b\"}")]),
    );
    assert_eq!(review.items[0].name, "a\\u{202e}\\u{1b}");
}

proptest! {
    #[test]
    fn pieces_make_up_both_texts(before in "[ab\n {}+\\\\u\\[-]{0,40}", now in "[ab\n {}+\\\\u\\[-]{0,40}") {
        let (before, now) = (exact(&before), exact(&now));
        let all = pieces(&before, &now);
        let side = |other: fn(&Piece) -> bool| all.iter().filter(|piece| !other(piece)).map(|piece| match piece {
            Piece::Same(text) | Piece::Removed(text) | Piece::Added(text) => text.as_str(),
        }).collect::<String>();
        prop_assert_eq!(side(|piece| matches!(piece, Piece::Added(_))), before);
        prop_assert_eq!(side(|piece| matches!(piece, Piece::Removed(_))), now);
    }
}
