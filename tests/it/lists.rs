//! Lists of tools: pages, bad definitions, names that collide, and changes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{NO_LIMITS, PATIENCE, Serving, Site, contained, on_host, wait_until};

/// All pages of the tools, each as the names on it.
fn pages(serving: &mut Serving) -> Vec<Vec<String>> {
    let (mut pages, mut params) = (Vec::new(), json!({}));
    loop {
        let result = serving.request("tools/list", &params.to_string())["result"].clone();
        let tools = result["tools"].as_array().unwrap_or_else(|| panic!("{result}"));
        pages.push(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect());
        match result["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return pages,
        }
    }
}

/// Both ends page: the server by 7, the gateway by 250.
#[test]
fn a_long_list_comes_whole_in_pages_of_bounded_size() {
    let site = Site::new(&contained("fx", &["--tools", "600", "--page-size", "7"]));
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    let pages = pages(&mut serving);
    let shown = site.server("fx")["tools"].as_u64().unwrap() as usize;
    assert!(pages.len() == 3 && pages.iter().all(|page| page.len() <= 250), "{} pages", pages.len());
    let all: Vec<&String> = pages.iter().flatten().collect();
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (shown, shown));
    assert!(shown > 600 && all.last().unwrap().as_str() == "fx__dummy_0600");
    assert_eq!(serving.text("fx__dummy_0600", json!({})), "dummy_0600");
}

#[test]
fn a_cursor_that_is_not_of_this_list_is_refused() {
    let site = Site::new(&(on_host("fx", &["--tools", "300"]) + "min_role = \"guest\"\n"));
    let mut serving = site.open();
    serving.wait_for_tool("fx__echo");
    let good = serving.request("tools/list", "{}")["result"]["nextCursor"].as_str().unwrap().to_owned();
    let mut other = site.open();
    other.wait_for_tool("fx__echo");
    let refused = |serving: &mut Serving, cursor: Value| {
        let error = serving.request("tools/list", &json!({ "cursor": cursor }).to_string())["error"].clone();
        assert_eq!(error["code"], -32602, "{cursor}: {error}");
    };
    for cursor in [json!("bogus"), json!(""), json!("250"), json!(format!("{good}0")), json!(7)] {
        refused(&mut serving, cursor);
    }
    refused(&mut other, json!(good));
    let second = serving.request("tools/list", &json!({ "cursor": good }).to_string());
    assert!(!second["result"]["tools"].as_array().unwrap().is_empty());
}

#[test]
fn odd_pages_of_a_server_are_read_and_endless_ones_end() {
    let flags = ["--tools", "20", "--page-size", "5", "--cursor"];
    let with = |last: &'static str| [flags.as_slice(), &[last]].concat();
    let site = Site::new(&(on_host("empty", &with("empty")) + &on_host("endless", &with("endless"))));
    let mut serving = site.open();
    for server in ["empty", "endless"] {
        serving.wait_for_tool(&format!("{server}__dummy_0020"));
    }
    let all = pages(&mut serving).concat();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "no tool twice");
    assert_eq!(site.server("empty")["reason"], Value::Null);
    let endless = site.server("endless");
    assert!(endless["reason"].as_str().unwrap().contains("comes back to a page"), "{endless}");
}

#[test]
fn one_bad_definition_is_withheld_and_counted_and_the_rest_is_served() {
    for (kind, named) in [
        ("schema", "\"bad\" has no inputSchema"),
        ("no-schema", "\"bad\" has no inputSchema"),
        ("type", "\"bad\" has no inputSchema"),
        ("name", "no usable name"),
        ("text", "no object"),
    ] {
        let site = Site::new(&on_host("fx", &["--bad-tool", kind]));
        let mut serving = site.open();
        serving.wait_for_tool("fx__whoami");
        assert!(!serving.tools().contains(&"fx__bad".to_owned()));
        let shown = site.server("fx");
        assert_eq!((&shown["withheld"], &shown["state"]), (&json!(1), &json!("ready")), "{shown}");
        assert!(shown["reason"].as_str().unwrap().contains(named), "{shown}");
        assert!(serving.close().stderr.contains(named), "the operator is told");
    }
}

#[test]
fn definitions_are_shown_as_their_server_wrote_them_but_for_the_name() {
    let site = Site::new(&on_host("fx", &["--odd"]));
    let mut serving = site.open();
    serving.wait_for_tool("fx__odd_numbers");
    let id = serving.ask("tools/list", "{}");
    let line = serving.answer_line(id);
    for part in [
        r#"{"zeta":null,"x-vendor":{"z":1,"y":[1e400,-0,1.10,1E5],"a":123456789012345678901234567890},"name":"fx__odd_numbers","#,
        r#""multipleOf":0.10,"maximum":18446744073709551616}},"$comment":"z to a"},"description":"Odd numbers."}"#,
        r#"{"title":"\u0041 \/ b","name":"fx__odd_unicode","#,
        r#""\ud83d\ude00":{"type":"string"},"#,
    ] {
        assert!(line.contains(part), "{part}\n{line}");
    }
    let listed = serving.tools();
    let dotted = listed.iter().find(|name| name.starts_with("fx__odd-dotted-NAME_")).unwrap();
    assert!(dotted.len() <= 48 && dotted.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{dotted}");
    assert_eq!(serving.text(dotted, json!({"x": 1})), r#"{"x":1}"#);
}

#[test]
fn a_server_that_is_late_is_told_of_when_it_is_there() {
    // Longer than a first list waits.
    let site = Site::new(&(contained("late", &["--slow-init", "7000"]) + &contained("fx", &[])));
    let mut serving = site.open();
    let first = serving.tools();
    assert!(first.iter().all(|tool| tool.starts_with("fx__")) && !first.is_empty(), "{first:?}");
    serving.notification("notifications/tools/list_changed");
    assert!(serving.tools().contains(&"late__echo".to_owned()));
    assert_eq!(serving.settled(), [Value::Null; 0], "told once");
}

#[test]
fn who_may_not_see_a_tool_is_not_told_that_it_came() {
    let everyone = "min_role = \"guest\"\n";
    let hidden = "tools = { min_role = { \"*\" = \"admin\" } }\n";
    let late = on_host("late", &["--slow-init", "7000"]) + everyone + hidden;
    let site = Site::new(&(late + &on_host("fx", &[]) + everyone));
    let mut guest = site.serve_with(&["--role", "guest"]);
    guest.initialize();
    guest.wait_for_tool("fx__echo");
    site.server_in("late", "ready");
    // Whoever may see it is told by now: the same change, the same wait.
    let beside = site.another(&std::fs::read_to_string(site.config()).unwrap());
    let mut admin = beside.serve_with(&["--role", "admin"]);
    admin.initialize();
    admin.tools();
    admin.notification("notifications/tools/list_changed");
    assert_eq!(guest.settled(), [Value::Null; 0]);
    assert!(guest.tools().iter().all(|tool| tool.starts_with("fx__")));
}

#[test]
fn bare_names_that_collide_are_withheld_from_every_claimant() {
    let bare = "[gateway]\nnames = \"bare\"\n";
    let site = Site::new(&format!("{bare}{}{}", on_host("a", &["--tools", "1"]), on_host("b", &["--tools", "2"])));
    let mut serving = site.open();
    serving.wait_for_tool("dummy_0002");
    wait_until("both listed", PATIENCE, || ["a", "b"].iter().all(|name| site.server(name)["state"] == "ready"));
    assert_eq!(serving.tools(), ["dummy_0002"]);
    assert_eq!(serving.text("dummy_0002", json!({})), "dummy_0002");
    serving.unknown("echo");
    serving.unknown("dummy_0001");
}

#[test]
fn a_server_of_any_name_is_reached_by_the_name_that_is_listed() {
    let names = ["My.Srv (dev)", "a__b", "0", "x-_-y"];
    let entries: String = names.iter().map(|name| on_host(&format!("{name:?}"), &[])).collect();
    let site = Site::new(&format!("{NO_LIMITS}{entries}"));
    let mut serving = site.open();
    wait_until("all listed", PATIENCE, || serving.tools().iter().filter(|tool| tool.contains("count")).count() == 4);
    let counters: Vec<String> = serving.tools().into_iter().filter(|tool| tool.contains("__count")).collect();
    assert_eq!(counters.iter().collect::<BTreeSet<_>>().len(), 4, "{counters:?}");
    for name in &counters {
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{name}");
        assert_eq!(serving.text(name, json!({})), r#"{"calls":1}"#, "each has a server of its own");
    }
    for name in names {
        let ran = site.run(&["call", name, "echo", "x=1"]);
        assert_eq!((ran.code, ran.stdout.trim()), (Some(0), r#"{"x":1}"#), "{}", ran.stderr);
    }
}

#[test]
fn lists_of_what_is_not_offered_are_empty() {
    let site = Site::new("");
    let mut serving = site.open();
    for (method, key) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        assert_eq!(serving.request(method, "{}")["result"], json!({ key: [] }));
    }
    assert_eq!(serving.request("tools/list", "{}")["result"], json!({"tools": []}));
}
