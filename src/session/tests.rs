//! The conversation, line by line.

use super::*;

fn line(text: &str) -> Line {
    Line::Whole(text.as_bytes().to_vec())
}

fn send(session: &mut Session, text: &str) -> String {
    match session.line(line(text)) {
        Some(Effect::Send(line) | Effect::Refuse(Refuse { line, .. })) => line,
        other => format!("{other:?}"),
    }
}

fn opened() -> Session {
    let mut session = Session::new("bulkhead");
    let init = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    let answer = send(&mut session, init);
    assert!(answer.contains(r#""protocolVersion":"2025-06-18""#), "{answer}");
    session
}

fn call(session: &mut Session, text: &str) -> Call {
    match session.line(line(text)) {
        Some(Effect::Call(call)) => call,
        other => panic!("{other:?}"),
    }
}

const STATELESS_META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

#[test]
fn nothing_but_ping_is_served_before_initialize() {
    let mut s = Session::new("b");
    assert_eq!(send(&mut s, r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#), r#"{"jsonrpc":"2.0","id":9,"result":{}}"#);
    for method in ["tools/list", "tools/call", "prompts/list"] {
        let answer =
            send(&mut s, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"name":"x"}}}}"#));
        assert!(answer.contains("-32600"), "{answer}");
    }
    assert_eq!(s.open_requests(), 0);
}

#[test]
fn a_discover_does_not_lock_the_pipe() {
    let mut s = Session::new("b");
    let d = send(
        &mut s,
        &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{STATELESS_META}}}}}"#),
    );
    assert!(d.contains("supportedVersions"), "{d}");
    let init = r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
    assert!(send(&mut s, init).contains("2025-11-25"));
    let stateless = format!(r#"{{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{{{STATELESS_META}}}}}"#);
    assert!(matches!(s.line(line(&stateless)), Some(Effect::List(List { era: Era::Stateless, .. }))));
    let plain = r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#;
    assert!(matches!(s.line(line(plain)), Some(Effect::List(List { era: Era::Handshake, .. }))));
}

#[test]
fn a_stateless_request_is_checked_by_itself() {
    let mut s = opened();
    let with =
        |meta: &str| format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{{"_meta":{{{meta}}}}}}}"#);
    let other = send(&mut s, &with(r#""io.modelcontextprotocol/protocolVersion":"2030-01-01""#));
    assert!(other.contains("-32022") && other.contains("supported") && other.contains("2026-07-28"), "{other}");
    let bare = send(&mut s, &with(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#));
    assert!(bare.contains("-32602"), "{bare}");
    let ping = format!(r#"{{"jsonrpc":"2.0","id":6,"method":"ping","params":{{{STATELESS_META}}}}}"#);
    assert!(send(&mut s, &ping).contains("-32601"), "the stateless era has no ping");
}

#[test]
fn ids_come_back_exactly_and_once() {
    let mut s = opened();
    for id in ["0", "-1", "\"a\\u0062\"", "90071992547409931234", "1.0"] {
        let c =
            call(&mut s, &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x"}}}}"#));
        let answer = s.answered(c.key, Body::Result("{}".into())).unwrap();
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
        assert!(s.answered(c.key, Body::Result("{}".into())).is_none());
    }
}

#[test]
fn an_id_in_flight_cannot_be_used_again() {
    let mut s = opened();
    let text = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
    let first = call(&mut s, text);
    assert!(send(&mut s, text).contains("-32600"));
    s.answered(first.key, Body::Result("{}".into())).unwrap();
    call(&mut s, text);
}

#[test]
fn a_cancelled_request_is_never_answered() {
    let mut s = opened();
    let c = call(&mut s, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#);
    let cancel =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
    for other in ["77", "\"1\"", "null"] {
        assert!(s.line(line(&cancel(other))).is_none(), "{other}");
    }
    assert!(s.line(line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}"#)).is_none());
    assert!(matches!(s.line(line(&cancel("1"))), Some(Effect::Cancel(key)) if key == c.key));
    assert!(s.answered(c.key, Body::Result("{}".into())).is_none());
    assert!(s.progress(c.key, r#"{"progressToken":1,"progress":1}"#).is_none());
}

#[test]
fn progress_carries_the_clients_own_token() {
    let mut s = opened();
    let with = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}"#;
    let c = call(&mut s, with);
    assert!(c.progress);
    assert_eq!(
        s.progress(c.key, r#"{"progress":1.0, "progressToken":7}"#).unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0, "progressToken":"p"}}"#
    );
}

#[test]
fn garbage_is_answered_with_a_parse_error_and_the_session_goes_on() {
    let mut s = opened();
    for garbage in ["{ not json", r#"{"jsonrpc":"2.0","id":6,"method":"#, "[1,2", "\u{0}"] {
        let answer = send(&mut s, garbage);
        assert!(answer.contains(r#""id":null"#) && answer.contains("-32700"), "{answer}");
    }
    let not_utf8 =
        Line::Whole(b"{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\",\"params\":{\"a\":\"\xff\"}}".to_vec());
    assert!(matches!(s.line(not_utf8), Some(Effect::Send(l)) if l.contains("-32700")));
    assert!(send(&mut s, r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).contains("result"));
}

#[test]
fn a_line_over_the_cap_is_answered_under_its_id() {
    let mut s = opened();
    let head = br#"{"jsonrpc":"2.0","id":"big","method":"tools/call","params":{"#.to_vec();
    match s.line(Line::TooLong { head, tail: vec![], length: 99 }) {
        Some(Effect::Send(l)) => assert!(l.contains(r#""id":"big""#) && l.contains("99 bytes"), "{l}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn arguments_that_are_no_object_and_doubled_keys_are_refused() {
    let mut s = opened();
    for params in [
        r#"{"name":"x","arguments":[1]}"#,
        r#"{"name":"x","arguments":"{}"}"#,
        r#"{"name":"x","name":"y"}"#,
        r#"{"name":"x","arguments":{},"arguments":{}}"#,
        r#"{"name":"x","Name":"y"}"#,
        r#"{"name":"x","name\u0000":"y"}"#,
        r#"{"name":"x","argument\u017f":{}}"#,
        r#"{"name":1}"#,
        r#"[1]"#,
        r#"{"name":"x","_meta":{"progressToken":{}}}"#,
    ] {
        let answer = send(&mut s, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#));
        assert!(answer.contains("-32602"), "{params}: {answer}");
    }
    for fine in [r#"{"name":"x"}"#, r#"{"name":"x","arguments":null}"#, r#"{"name":"x","arguments":{"a":null}}"#] {
        let c = call(&mut s, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{fine}}}"#));
        s.answered(c.key, Body::Error(-1, "x".into()));
    }
}

#[test]
fn unknown_notifications_and_stray_answers_are_ignored_and_unknown_methods_refused() {
    let mut s = opened();
    assert!(s.line(line(r#"{"jsonrpc":"2.0","method":"notifications/vendor"}"#)).is_none());
    assert!(s.line(line(r#"{"jsonrpc":"2.0","id":44,"result":{}}"#)).is_none());
    assert!(send(&mut s, r#"{"jsonrpc":"2.0","id":1,"method":"vendor/x"}"#).contains("-32601"));
    for empty in ["prompts/list", "resources/list", "resources/templates/list"] {
        let answer = send(&mut s, &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{empty}"}}"#));
        assert!(answer.contains(":[]"), "{answer}");
    }
}
