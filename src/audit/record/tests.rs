//! Tests of the records: their form is a contract.

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::audit::fixture::{egress, gateway, intent, outcome, server};
use crate::config::Sensitive;

fn body(record: Record) -> String {
    record.body(UNIX_EPOCH + Duration::from_millis(1_700_000_000_123), "gw-1", &Redactor::default())
}

#[test]
fn an_intent_has_every_field_in_its_place() {
    let call = CallId::new();
    let golden = format!(
        concat!(
            r#""time":"2023-11-14T22:13:20.123Z","kind":"intent","gateway":"gw-1","call":"{}","#,
            r#""principal":"me","actor":"stdio:me","role":"user","face":"stdio","session":"s-1","client":"inspector 1.0","#,
            r#""method":"tools/call","exposed":"time__now","server":"time","tool":"now","decision":"allow","#,
            r#""policy":["min-role"],"args_bytes":2,"args_hash":"abc","instance":"c0ffee","image":"sha256:1","#,
            r#""isolation":"proven","evidence":"sha256:2""#
        ),
        call
    );
    assert_eq!(body(Record::Intent(intent(call))), golden);
}

#[test]
fn what_is_not_there_is_null_and_a_guest_has_no_principal() {
    let guest = Intent {
        principal: None,
        actor: "guest".into(),
        role: Role::Guest,
        server: None,
        allow: false,
        instance: None,
        image: None,
        isolation: None,
        evidence: None,
        ..intent(CallId::new())
    };
    let body = body(Record::Intent(guest));
    for part in [
        r#""principal":null,"actor":"guest","role":"guest""#,
        r#""server":null"#,
        r#""decision":"deny""#,
        r#""instance":null,"image":null,"isolation":null,"evidence":null"#,
    ] {
        assert!(body.contains(part), "{part} in {body}");
    }
}

#[test]
fn the_other_kinds_have_their_fields_in_place() {
    let call = CallId::new();
    let at = |kind| format!(r#""time":"2023-11-14T22:13:20.123Z","kind":"{kind}","gateway":"gw-1","#);
    assert_eq!(
        body(Record::Outcome(outcome(call))),
        at("outcome") + &format!(r#""call":"{call}","outcome":"ok","detail":null,"ms":12,"result_bytes":34"#)
    );
    assert_eq!(
        body(Record::Server(server())),
        at("server")
            + r#""server":"time","event":"stopped","container":"c0ffee","image":"sha256:1","evidence":null,"reason":"asked to""#
    );
    let opens = Egress { reason: Some("x".into()), bytes_out: None, bytes_in: None, ms: None, ..egress() };
    let passage = r#""connection":"c1","server":"time","instance":"c0ffee","target":"a.org:443","decision":"allow","#;
    assert_eq!(
        body(Record::Egress(egress())),
        at("egress") + passage + r#""reason":null,"bytes_out":1,"bytes_in":2,"ms":3"#
    );
    assert_eq!(
        body(Record::Egress(opens)),
        at("egress") + passage + r#""reason":"x","bytes_out":null,"bytes_in":null,"ms":null"#
    );
    assert_eq!(
        body(Record::Gateway(gateway(GatewayWord::Start))),
        at("gateway") + r#""event":"start","config_digest":"d1","policy_digest":"d2""#
    );
    let reload = Reload {
        old_config_digest: Some("d0".into()),
        old_policy_digest: Some("d2".into()),
        changes: Some("added a".into()),
        reason: None,
    };
    assert_eq!(
        body(Record::Gateway(GatewayEvent { reload: Some(reload), ..gateway(GatewayWord::Reload) })),
        at("gateway")
            + r#""event":"reload","config_digest":"d1","policy_digest":"d2","old_config_digest":"d0","#
            + r#""old_policy_digest":"d2","changes":"added a","reason":null"#
    );
}

#[test]
fn outcomes_and_isolation_are_the_words_of_the_interface() {
    let words = [Ended::Ok, Ended::ToolError, Ended::RpcError, Ended::Denied].map(Ended::as_str);
    assert_eq!(words, ["ok", "tool_error", "rpc_error", "denied"]);
    assert_eq!(Ended::Failed(Class::RateLimited).as_str(), "rate_limited");
    assert_eq!(to_json(&Isolation::NotRunning), r#""not-running""#);
    assert_eq!(to_json(&ServerWord::Oom), r#""oom""#);
}

#[test]
fn no_text_from_outside_carries_a_secret_in() {
    const SECRET: &str = "SENTINEL/7";
    let redactor = Redactor::new(&[Sensitive::new(SECRET)]).unwrap();
    let text = || Some(format!("x {SECRET} y"));
    let records = [
        Record::Intent(Intent {
            session: text(),
            client: text(),
            method: text().unwrap(),
            exposed: text(),
            tool: text(),
            ..intent(CallId::new())
        }),
        Record::Outcome(Outcome { detail: text(), ..outcome(CallId::new()) }),
        Record::Server(ServerEvent { reason: text(), ..server() }),
        Record::Egress(Egress { target: text().unwrap(), reason: text(), ..egress() }),
        Record::Gateway(GatewayEvent {
            reload: Some(Reload { changes: text(), reason: text(), ..Reload::default() }),
            ..gateway(GatewayWord::Reload)
        }),
    ];
    for (record, redactions) in records.into_iter().zip([5, 1, 1, 2, 2]) {
        let body = record.body(UNIX_EPOCH, "gw-1", &redactor);
        assert!(!body.contains("SENTINEL"), "{body}");
        assert_eq!(body.matches("x [redacted] y").count(), redactions, "{body}");
    }
}

#[test]
fn no_field_makes_a_record_longer_than_a_line_may_be() {
    let long = || Some("\u{1f980}\u{e0041}".repeat(10_000));
    let monster = Intent {
        principal: long(),
        actor: long().unwrap(),
        session: long(),
        client: long(),
        method: long().unwrap(),
        exposed: long(),
        server: long(),
        tool: long(),
        args_hash: long(),
        instance: long(),
        image: long(),
        evidence: long(),
        ..intent(CallId::new())
    };
    let body = body(Record::Intent(monster));
    assert!(body.len() < crate::audit::lines::MAX_LINE / 2, "{}", body.len());
    assert!(body.contains("… (80000 bytes)") && body.is_char_boundary(body.len()));
}

#[test]
fn control_characters_and_direction_marks_stay_escapes() {
    let nasty = Outcome { detail: Some("\u{1b}[31m\u{202e}\u{2028}\n".into()), ..outcome(CallId::new()) };
    let body = body(Record::Outcome(nasty));
    assert!(body.contains(r#""detail":"\u001b[31m\u202e\u2028\n""#), "{body}");
}
