use proptest::prelude::*;

use super::*;

const PROGRAM: &str = "/opt/bulkhead/bin/bulkhead";
const TARGET: Target<'_> = Target { key: "mcpServers", name: "bulkhead", program: PROGRAM };

fn entry() -> Entry {
    let args = ["--config", "/h/bulkhead.toml", "serve"].map(str::to_owned).to_vec();
    Entry { kind: None, command: PROGRAM.to_owned(), args }
}

/// The text with the entry in it.
fn with(text: &str) -> String {
    match install(text, TARGET, &entry()).unwrap() {
        Outcome::Changed(text) => text,
        Outcome::Same => panic!("nothing to do in {text}"),
    }
}

/// The text without the entry.
fn without(text: &str) -> String {
    match uninstall(text, TARGET).unwrap() {
        Outcome::Changed(text) => text,
        Outcome::Same => panic!("nothing to do in {text}"),
    }
}

const ARGS: &str = r#""args": ["--config", "/h/bulkhead.toml", "serve"]"#;

/// Layouts with what has to become of them; `@` stands for the command and the arguments, over lines of two indentations.
fn layouts() -> Vec<(&'static str, String)> {
    let command = format!("\"command\": \"{PROGRAM}\"");
    let over = |newline: &str, outer: &str, inner: &str| {
        format!("\"bulkhead\": {{{newline}{inner}{command},{newline}{inner}{ARGS}{newline}{outer}}}")
    };
    let line = format!("\"bulkhead\": {{{command}, {ARGS}}}");
    let tight = format!("\"bulkhead\":{{{command},{ARGS}}}").replace("\": ", "\":").replace("\", \"", "\",\"");
    let two = over("\n", "    ", "      ");
    vec![
        ("{}", format!("{{\n  \"mcpServers\": {{\n    {two}\n  }}\n}}")),
        ("{\n  \"x\": 1\n}\n", format!("{{\n  \"x\": 1,\n  \"mcpServers\": {{\n    {two}\n  }}\n}}\n")),
        ("{\n  \"mcpServers\": {}\n}\n", format!("{{\n  \"mcpServers\": {{\n    {two}\n  }}\n}}\n")),
        ("{\n  \"mcpServers\": { }\n}\n", format!("{{\n  \"mcpServers\": {{\n    {two}\n   }}\n}}\n")),
        (
            "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n",
            format!("{{\n  \"mcpServers\": {{\n    {two}\n    // none yet\n  }}\n}}\n"),
        ),
        (
            "{\n  \"mcpServers\": { // none yet\n  }\n}\n",
            format!("{{\n  \"mcpServers\": {{ // none yet\n    {two}\n  }}\n}}\n"),
        ),
        (
            "{\n  \"mcpServers\": {\n    \"a\": {} // the first\n    // the end\n  }\n}\n",
            format!("{{\n  \"mcpServers\": {{\n    \"a\": {{}}, // the first\n    {two}\n    // the end\n  }}\n}}\n"),
        ),
        (
            "{\n  \"mcpServers\": {\n    \"a\": {}, // the first\n  },\n}\n",
            format!("{{\n  \"mcpServers\": {{\n    \"a\": {{}}, // the first\n    {two},\n  }},\n}}\n"),
        ),
        (
            "\u{feff}{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {}\r\n\t}\r\n}\r\n",
            format!(
                "\u{feff}{{\r\n\t\"mcpServers\": {{\r\n\t\t\"a\": {{}},\r\n\t\t{}\r\n\t}}\r\n}}\r\n",
                over("\r\n", "\t\t", "\t\t\t")
            ),
        ),
        ("{\"mcpServers\": {\"a\": 1}}\n", format!("{{\"mcpServers\": {{\"a\": 1, {line}}}}}\n")),
        ("{\"mcpServers\": {\"a\": 1, }}", format!("{{\"mcpServers\": {{\"a\": 1, {line}, }}}}")),
        ("{\"mcpServers\":{\"a\":1}}", format!("{{\"mcpServers\":{{\"a\":1,{tight}}}}}")),
        ("{\"mcpServers\":{}}", format!("{{\"mcpServers\":{{{tight}}}}}")),
        ("{\"x\":1}", format!("{{\"x\":1,\"mcpServers\":{{{tight}}}}}")),
    ]
}

#[test]
fn what_is_put_in_looks_as_if_it_had_always_been_there() {
    for (text, expected) in layouts() {
        assert_eq!(with(text), expected);
    }
}

#[test]
fn where_there_is_nothing_a_document_is_made() {
    let document = with("{}") + "\n";
    assert_eq!(with(""), document);
    assert_eq!(with("\n \n"), document);
    assert_eq!(with("// mine\n"), format!("// mine\n{document}"));
    assert_eq!(with("\u{feff}// mine"), format!("\u{feff}// mine\n{document}"));
    assert_eq!(with("\r\n"), document.replace('\n', "\r\n"));
}

#[test]
fn an_equal_entry_stays_however_it_is_written() {
    for text in layouts().into_iter().map(|(_, text)| text) {
        assert_eq!(install(&text, TARGET, &entry()), Ok(Outcome::Same));
        let escaped = text.replace("serve", "\\u0073erve");
        assert_eq!(install(&escaped, TARGET, &entry()), Ok(Outcome::Same));
    }
}

#[test]
fn an_entry_of_ours_keeps_what_is_not_ours_to_write() {
    let text = "{\"mcpServers\": {\n \"bulkhead\": {\n  // mine\n  \"args\": [ \"old\" ], \"disabled\": true,\n  \"command\": \"/old/bulkhead\" } } }";
    let expected = text.replace("[ \"old\" ]", &ARGS[8..]).replace("/old/bulkhead", PROGRAM);
    assert_eq!(with(text), expected);
    let lacking = "{\"mcpServers\": {\n \"bulkhead\": {\"command\": \"bulkhead\"}}}";
    let expected = format!("{{\"mcpServers\": {{\n \"bulkhead\": {{\"command\": \"{PROGRAM}\", {ARGS}}}}}}}");
    assert_eq!(with(lacking), expected);
}

#[test]
fn an_entry_of_another_is_replaced_whole() {
    let text =
        "{\n  \"mcpServers\": {\n    \"bulkhead\": {\"url\": \"https://x\", \"headers\": {}},\n    \"a\": {}\n  }\n}";
    let new = with(text);
    assert!(!new.contains("url") && new.contains(PROGRAM) && new.ends_with("},\n    \"a\": {}\n  }\n}"), "{new}");
}

#[test]
fn others_are_counted_by_who_starts_them() {
    let text = "{\"mcpServers\": {\"a\": {\"command\": \"x\"}, \"b\": {\"url\": \"u\"}, \"bulkhead\": {\"command\": \"bulkhead\"}, \"c\": {\"command\": \"y\"}, \"ours too\": {\"command\": \"/x/bulkhead\"}}}";
    assert_eq!(look(text, TARGET), Ok(Seen { entry: Some(Whose::Ours), started: 2, reached: 1 }));
    assert_eq!(look("{\"mcpServers\": {\"bulkhead\": []}}", TARGET).unwrap().entry, Some(Whose::Another));
    assert_eq!(look("", TARGET), Ok(Seen::default()));
}

#[test]
fn an_entry_between_others_takes_its_comma_with_it() {
    for (text, expected) in [
        ("{\"mcpServers\": {\"a\": 1, \"bulkhead\": {}, \"b\": 2}}", "{\"mcpServers\": {\"a\": 1, \"b\": 2}}"),
        ("{\"mcpServers\": {\"bulkhead\": {}, \"b\": 2}}", "{\"mcpServers\": { \"b\": 2}}"),
        (
            "{\"mcpServers\": {\n  \"a\": 1,\n  \"bulkhead\": {}, // ours, once\n  \"b\": 2\n}}",
            "{\"mcpServers\": {\n  \"a\": 1, // ours, once\n  \"b\": 2\n}}",
        ),
        ("{\"mcpServers\": {\n  \"a\": 1\n  , \"bulkhead\": {}\n}}", "{\"mcpServers\": {\n  \"a\": 1\n  \n}}"),
        ("{\"mcpServers\": {\n  \"bulkhead\": {}\n}}", "{\"mcpServers\": {}}"),
        ("{\"mcpServers\": {\n  \"bulkhead\": {},\n}}", "{\"mcpServers\": {}}"),
    ] {
        assert_eq!(without(text), expected);
    }
}

#[test]
fn a_backup_decides_only_where_nothing_else_has_changed_since() {
    let before = "{\n  \"mcpServers\": {\n  }\n}";
    let after = with(before);
    assert_eq!(without(&after), "{\n  \"mcpServers\": {}\n}", "which alone cannot know");
    assert!(restore(&after, before, TARGET));
    assert!(!restore(&after.replace("\"args\"", "\"env\": {}, \"args\""), before, TARGET));
    assert!(!restore(&format!("{after}\n"), before, TARGET));
    assert!(!restore(&after, &after, TARGET), "it holds the entry itself");
    let other = before.replace("{\n  }", "{\n    \"bulkhead\": {\"command\": \"x\"}\n  }");
    assert!(!restore(&with(&other), &other, TARGET), "another's entry does not come back");
}

/// White space and comments, as they may stand between any two tokens.
fn trivia() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just("".to_owned()),
        3 => Just(" ".to_owned()),
        3 => Just("\n".to_owned()),
        2 => Just("\n    ".to_owned()),
        1 => Just("\r\n".to_owned()),
        1 => Just("\t".to_owned()),
        1 => Just("\r".to_owned()),
        1 => Just("\u{a0}".to_owned()),
        1 => Just("// a, \"b\": {} \n".to_owned()),
        1 => Just("//x\r\n  ".to_owned()),
        1 => Just("/* , } */".to_owned()),
        1 => Just("/* é\n */".to_owned()),
    ];
    prop::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1e400".to_owned()),
        Just("null".to_owned()),
        Just("\"a,}\\\" // x\"".to_owned()),
        Just("\"\\u0062 é\"".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let list = (prop::collection::vec((trivia(), inner.clone(), trivia()), 0..3), trivia(), any::<bool>());
        prop_oneof![
            list.prop_map(|(items, end, comma)| {
                let text: Vec<_> = items.iter().map(|(a, v, b)| format!("{a}{v}{b}")).collect();
                format!("[{}{}{end}]", text.join(","), if comma && !text.is_empty() { "," } else { "" })
            }),
            object(inner, 0),
        ]
    })
}

/// An object of members with these values, whose keys all differ.
fn object(inner: impl Strategy<Value = String>, least: usize) -> impl Strategy<Value = String> {
    let member = (trivia(), trivia(), trivia(), inner, trivia());
    (prop::collection::vec(member, least..4), trivia(), any::<bool>()).prop_map(|(members, end, comma)| {
        let member = |(n, (a, b, c, v, d)): (usize, &(String, String, String, String, String))| {
            format!("{a}\"k{n}\"{b}:{c}{v}{d}")
        };
        let text: Vec<_> = members.iter().enumerate().map(member).collect();
        format!("{{{}{}{end}}}", text.join(","), if comma && !text.is_empty() { "," } else { "" })
    })
}

/// A text whose servers are such an object, among other members.
fn text(least: usize) -> impl Strategy<Value = String> {
    let servers = object(value(), least).prop_map(|object| format!("\"mcpServers\":{object}"));
    (any::<bool>(), trivia(), object(value(), 0), trivia(), servers, 0..3_u8, trivia()).prop_map(
        |(mark, a, object, b, servers, order, c)| {
            let rest = &object[1..object.len() - 1];
            let bare = rest.trim_end().is_empty() || !rest.contains("\"k0\"");
            let ends = rest.trim_end().ends_with(',');
            let inside = match order {
                0 if bare => format!("{b}{servers}{rest}"),
                0 => format!("{b}{servers},{rest}"),
                _ if bare || ends => format!("{rest}{b}{servers}{c}"),
                _ => format!("{rest},{b}{servers}{c}"),
            };
            format!("{}{a}{{{inside}}}{c}", if mark { "\u{feff}" } else { "" })
        },
    )
}

/// The tree of a text, without its layout.
fn tree(text: &str) -> serde_json::Value {
    fn of(value: &Value<'_>) -> serde_json::Value {
        match value {
            Value::Object(object) => {
                object.properties.iter().map(|p| (p.name.as_str().to_owned(), of(&p.value))).collect()
            }
            Value::Array(array) => array.elements.iter().map(of).collect(),
            Value::StringLit(lit) => format!("\"{}", lit.value).into(),
            Value::NumberLit(lit) => lit.value.into(),
            Value::BooleanLit(lit) => lit.value.into(),
            Value::NullKeyword(_) => serde_json::Value::Null,
        }
    }
    of(&Value::Object(root(split(text).1).unwrap().unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn taking_out_gives_the_bytes_from_before(text in text(1)) {
        prop_assume!(root(split(&text).1).is_ok());
        let after = with(&text);
        prop_assert_eq!(without(&after), text);
    }

    #[test]
    fn with_the_text_from_before_this_holds_of_every_text(text in prop_oneof![text(0), object(value(), 0), trivia()]) {
        prop_assume!(root(split(&text).1).is_ok());
        prop_assert!(restore(&with(&text), &text, TARGET));
    }

    #[test]
    fn nothing_but_the_entry_changes(text in prop_oneof![text(0), object(value(), 0)]) {
        prop_assume!(root(split(&text).1).is_ok());
        let after = with(&text);
        let mut expected = tree(&text);
        let servers = &mut expected["mcpServers"];
        if servers.is_null() {
            *servers = serde_json::json!({});
        }
        servers["bulkhead"] = tree(&with("{}"))["mcpServers"]["bulkhead"].clone();
        prop_assert_eq!(tree(&after), expected);
        // Every byte from before is still there, in its order.
        let mut rest = after.chars();
        prop_assert!(text.chars().all(|c| rest.any(|other| other == c)), "{:?}", after);
        prop_assert_eq!(install(&after, TARGET, &entry()), Ok(Outcome::Same));
    }
}
