//! Tests of the policy: the rules one by one, then what holds for all of them.

use proptest::prelude::*;

use super::*;
use crate::config::ToolRules;
use crate::gate::fixture::{principal, server};

const ROLES: [Role; 3] = [Role::Guest, Role::User, Role::Admin];

#[test]
fn the_digest_is_of_what_is_decided_by_and_of_nothing_else() {
    let (a, b) = (server("a"), server("b"));
    let base = digest(&[a.clone(), b.clone()]);
    assert_eq!(digest(&[b.clone(), a.clone()]), base);
    let slower = Server { timeout: std::time::Duration::from_secs(9), digest: "x".into(), ..b.clone() };
    assert_eq!(digest(&[a.clone(), slower]), base);
    for other in [
        Server { min_role: Role::Admin, ..b.clone() },
        Server { disabled: Some("x".into()), ..b.clone() },
        with(ToolRules { deny: vec!["x".into()], ..ToolRules::default() }),
        server("c"),
    ] {
        assert_ne!(digest(&[a.clone(), other]), base);
    }
}

fn with(tools: ToolRules) -> Server {
    Server { tools, ..server("s1") }
}

fn rules(allow: &[&str], deny: &[&str], min_role: &[(&str, Role)]) -> ToolRules {
    let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
    let min_role = min_role.iter().map(|(s, r)| ((*s).to_owned(), *r)).collect();
    ToolRules { allow: owned(allow), deny: owned(deny), min_role }
}

fn check(role: Role, server: &Server, tool: &str) -> (bool, Vec<&'static str>) {
    let Decision { allow, policy } = decide(&principal("p", role), server, tool);
    (allow, policy)
}

#[test]
fn the_servers_least_role_decides_where_nothing_else_is_written() {
    let s = server("s1");
    assert_eq!(check(Role::Guest, &s, "t"), (false, vec!["min-role"]));
    assert_eq!(check(Role::User, &s, "t"), (true, vec!["min-role"]));
    assert_eq!(check(Role::Admin, &s, "t"), (true, vec!["min-role"]));
}

#[test]
fn deny_wins_over_allow_even_for_an_admin() {
    let s = with(rules(&["*"], &["danger_*"], &[]));
    assert_eq!(check(Role::Admin, &s, "danger_rm"), (false, vec!["tools-deny"]));
    assert_eq!(check(Role::Admin, &s, "Danger_rm"), (true, vec!["min-role", "tools-allow"]), "names are exact in case");
}

#[test]
fn a_written_allow_list_shuts_out_the_rest() {
    let s = with(rules(&["read_*", "list"], &[], &[]));
    assert!(check(Role::User, &s, "read_file").0);
    for other in ["write_file", "list ", "List", "alist", ""] {
        assert_eq!(check(Role::Admin, &s, other), (false, vec!["tools-allow"]), "{other:?}");
    }
}

#[test]
fn the_strictest_matching_tool_role_counts_on_top_of_the_servers_own() {
    let s = with(rules(&[], &[], &[("run_*", Role::User), ("run_code", Role::Admin), ("*", Role::Guest)]));
    assert_eq!(check(Role::User, &s, "run_code"), (false, vec!["tool-min-role"]));
    assert_eq!(check(Role::User, &s, "run_test"), (true, vec!["min-role", "tool-min-role"]));
    assert_eq!(check(Role::Guest, &s, "other"), (false, vec!["min-role"]), "a tool's role never opens the server");
}

#[test]
fn a_disabled_server_has_no_tools() {
    let s = Server { disabled: Some("needs $KEY".into()), ..server("s1") };
    assert_eq!(check(Role::Admin, &s, "t"), (false, vec!["disabled"]));
}

#[test]
fn every_rule_that_forbids_is_named() {
    let mut s = with(rules(&["a"], &["*"], &[("*", Role::Admin)]));
    s.disabled = Some("off".into());
    let (allow, policy) = check(Role::Guest, &s, "t");
    assert!(!allow);
    assert_eq!(policy, ["disabled", "min-role", "tools-deny", "tools-allow", "tool-min-role"]);
}

#[test]
fn stars_stand_for_any_run_of_characters() {
    for (pattern, name, fits) in [
        ("*", "", true),
        ("*", "anything", true),
        ("", "", true),
        ("", "a", false),
        ("a*c", "ac", true),
        ("a*c", "abcbc", true),
        ("a*c", "abcb", false),
        ("*_x", "a_x_x", true),
        ("a**b", "ab", true),
        ("ä*", "äö", true),
        ("?", "a", false),
        ("a.c", "abc", false),
        ("[a]", "a", false),
    ] {
        assert_eq!(matches(pattern, name), fits, "{pattern:?} {name:?}");
    }
}

#[test]
fn a_hostile_name_cannot_make_matching_slow() {
    let pattern = "a*".repeat(30) + "b";
    assert!(!matches(&pattern, &"a".repeat(100_000)));
}

fn any_rules() -> impl Strategy<Value = ToolRules> {
    let pattern = "[ab*]{0,4}";
    let roles = prop::sample::select(ROLES.to_vec());
    (
        prop::collection::vec(pattern, 0..3),
        prop::collection::vec(pattern, 0..3),
        prop::collection::vec((pattern, roles), 0..3),
    )
        .prop_map(|(allow, deny, min_role)| ToolRules { allow, deny, min_role })
}

/// Matching by the definition, as slow as it may be.
fn slow(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|n| slow(rest, &name[n..])),
        Some((c, rest)) => name.first() == Some(c) && slow(rest, &name[1..]),
    }
}

proptest! {
    #[test]
    fn matching_is_as_defined(pattern in "[ab*]{0,6}", name in "[ab]{0,8}") {
        prop_assert_eq!(matches(&pattern, &name), slow(pattern.as_bytes(), name.as_bytes()));
    }

    #[test]
    fn more_role_never_means_fewer_tools(tools in any_rules(), tool in "[ab]{0,4}") {
        let s = with(tools);
        let allowed = ROLES.map(|role| check(role, &s, &tool).0);
        prop_assert!(allowed.is_sorted(), "{:?}", allowed);
    }

    #[test]
    fn a_further_deny_never_opens_anything(tools in any_rules(), more in "[ab*]{0,4}", tool in "[ab]{0,4}") {
        let before = with(tools.clone());
        let mut after = with(tools);
        after.tools.deny.push(more);
        for role in ROLES {
            prop_assert!(check(role, &before, &tool).0 || !check(role, &after, &tool).0);
        }
    }

    #[test]
    fn a_decision_always_says_why(tools in any_rules(), tool in "\\PC{0,8}") {
        let s = with(tools);
        for role in ROLES {
            prop_assert!(!check(role, &s, &tool).1.is_empty());
        }
    }
}
