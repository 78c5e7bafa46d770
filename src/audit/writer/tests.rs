//! Tests of the handle, from many tasks and with several gateways on one file.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::*;
use crate::audit::fixture::{self, dir, gateway, intent, outcome, server};
use crate::audit::query::verify;
use crate::audit::record::{Ended, GatewayWord};
use crate::config::Sensitive;
use crate::error::Class;
use crate::name::CallId;

const SECRET: &str = "SENTINEL-a/b+c==";

fn open(path: &Path, sync: Sync, name: &str) -> Audit {
    let redactor = Redactor::new(&[Sensitive::new(SECRET)]).unwrap();
    Audit::open(path, sync, name.into(), Arc::new(redactor)).unwrap()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

/// One call's two records.
async fn call(audit: &Audit) {
    let call = CallId::new();
    audit.intent(intent(call)).await.unwrap();
    audit.outcome(outcome(call));
}

async fn eventually(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !what() {
        assert!(Instant::now() < end, "not within 10 s");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_intent_is_in_the_file_when_it_returns() {
    for sync in [Sync::Always, Sync::Batch] {
        let (_dir, path) = dir();
        let audit = open(&path, sync, "gw");
        let call = CallId::new();
        audit.intent(intent(call)).await.unwrap();
        assert!(text(&path).contains(&call.to_string()));
        let found = verify(&path).unwrap();
        assert_eq!(audit.head(), (1, found.head.hash));
        assert_eq!(found.interrupted, [call.to_string()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_calls_at_once_have_a_hundred_records_each() {
    let (_dir, path) = dir();
    let audit = open(&path, Sync::Always, "gw");
    let calls: Vec<_> = (0..100).map(|_| audit.clone()).map(|a| tokio::spawn(async move { call(&a).await })).collect();
    for call in calls {
        call.await.unwrap();
    }
    audit.close().await.unwrap();
    let found = verify(&path).unwrap();
    assert_eq!((found.records, found.first_bad_line, found.interrupted.len()), (200, None, 0));
}

#[tokio::test]
async fn records_stand_in_the_order_they_were_given_in_and_none_is_lost_on_the_way_out() {
    let (_dir, path) = dir();
    let audit = open(&path, Sync::Batch, "gw");
    audit.gateway(gateway(GatewayWord::Start));
    let calls: Vec<_> = (0..2_000).map(|_| CallId::new()).collect();
    for call in &calls {
        audit.outcome(outcome(*call));
    }
    audit.server(server());
    audit.gateway(gateway(GatewayWord::Stop)).await.unwrap();
    audit.close().await.unwrap();
    let text = text(&path);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2_003);
    assert!(lines[0].contains(r#""event":"start""#) && lines[2_002].contains(r#""event":"stop""#));
    assert!(calls.iter().zip(&lines[1..]).all(|(call, line)| line.contains(&call.to_string())));
    assert_eq!(verify(&path).unwrap().first_bad_line, None);
}

#[tokio::test]
async fn an_intent_is_recorded_also_if_nobody_waits_for_it_any_more() {
    let (_dir, path) = dir();
    let audit = open(&path, Sync::Always, "gw");
    let call = CallId::new();
    drop(audit.intent(intent(call)));
    audit.outcome(outcome(call));
    audit.close().await.unwrap();
    assert_eq!((verify(&path).unwrap().records, verify(&path).unwrap().interrupted.len()), (2, 0));
}

#[tokio::test]
async fn more_intents_than_may_wait_are_refused_and_room_comes_back() {
    let (_dir, path) = dir();
    let audit = open(&path, Sync::Batch, "gw");
    let room = audit.shared.waiting.clone().acquire_many_owned(MAX_WAITING as u32).await.unwrap();
    let fault = audit.intent(intent(CallId::new())).await.unwrap_err();
    assert!(fault.inward.contains("too many calls wait"), "{fault}");
    drop(room);
    for _ in 0..3 {
        audit.intent(intent(CallId::new())).await.unwrap();
    }
    audit.close().await.unwrap();
    assert_eq!(audit.shared.waiting.available_permits(), MAX_WAITING);
}

#[tokio::test]
async fn a_closed_audit_refuses_and_can_be_closed_again() {
    let (_dir, path) = dir();
    let audit = open(&path, Sync::Batch, "gw");
    audit.close().await.unwrap();
    let fault = audit.intent(intent(CallId::new())).await.unwrap_err();
    assert_eq!(fault.class, Class::Audit);
    assert!(audit.outcome(outcome(CallId::new())).await.is_err());
    audit.close().await.unwrap();
    assert_eq!(text(&path), "");
}

#[tokio::test]
async fn without_close_the_last_handle_still_leaves_nothing_behind() {
    let (_dir, path) = dir();
    let audit = open(&path, Sync::Batch, "gw");
    for _ in 0..500 {
        audit.outcome(outcome(CallId::new()));
    }
    drop(audit);
    eventually(|| text(&path).lines().count() == 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gateways_that_share_a_file_keep_one_chain() {
    let (_dir, path) = dir();
    let gateways: Vec<_> = ["a", "b", "c"].map(|name| open(&path, Sync::Batch, name)).into();
    let tasks: Vec<_> = (0..300)
        .map(|n| gateways[n % 3].clone())
        .map(|audit| tokio::spawn(async move { call(&audit).await }))
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    for audit in &gateways {
        audit.close().await.unwrap();
    }
    let found = verify(&path).unwrap();
    assert_eq!((found.records, found.first_bad_line, found.interrupted.len()), (600, None, 0));
    assert_eq!(text(&path).matches(r#""gateway":"b""#).count(), 200);
}

#[tokio::test]
async fn no_secret_gets_in_also_one_that_came_later() {
    let (_dir, path) = dir();
    let redactor = Arc::new(Redactor::default());
    let audit = Audit::open(&path, Sync::Batch, "gw".into(), redactor.clone()).unwrap();
    redactor.know(&[Sensitive::new(SECRET), Sensitive::new("later-secret")]).unwrap();
    let detail =
        Some(format!("{SECRET} U0VOVElORUwtYS9iK2M9PQ== SENTINEL-a%2Fb%2Bc%3D%3D later-secret\u{1b}[2J\u{2028}"));
    audit.outcome(Outcome { detail, outcome: Ended::Failed(Class::Crashed), ..outcome(CallId::new()) });
    audit.close().await.unwrap();
    let kept = r#""detail":"[redacted] [redacted]== [redacted] [redacted]\u001b[2J\u2028""#;
    assert!(text(&path).contains(kept), "{}", text(&path));
}

#[tokio::test]
async fn equal_arguments_have_equal_hashes_across_gateways_of_one_state() {
    let (_dir, path) = dir();
    let (a, b) = (open(&path, Sync::Batch, "a"), open(&path, Sync::Batch, "b"));
    assert_eq!(a.args_hash(b"{}"), b.args_hash(b"{}"));
    assert_eq!(a.args_hash(b"{}").len(), 64);
    let (_dir, other) = dir();
    assert_ne!(a.args_hash(b"{}"), open(&other, Sync::Batch, "a").args_hash(b"{}"));
}

#[tokio::test]
async fn an_unfit_file_is_a_fault_that_tells_the_caller_nothing_of_the_host() {
    let (dir, path) = dir();
    std::os::unix::fs::symlink(dir.path().join("elsewhere"), &path).unwrap();
    let fault = Audit::open(&path, Sync::Batch, "gw".into(), Arc::default()).err().unwrap();
    assert_eq!(fault.class, Class::Audit);
    assert!(fault.inward.contains("audit.jsonl") && fault.inward.contains("symbolic link"), "{fault}");
    assert!(fault.outward.contains("audit") && !fault.outward.contains('/'), "{}", fault.outward);
}

#[tokio::test]
async fn a_file_taken_away_refuses_calls_until_it_is_back_and_keeps_what_happened() {
    let (dir, path) = dir();
    let audit = open(&path, Sync::Batch, "gw");
    call(&audit).await;
    let away = dir.path().join("away");
    fs::rename(&path, &away).unwrap();
    assert!(audit.intent(intent(CallId::new())).await.is_err());
    assert!(audit.server(server()).await.is_err(), "it says that it is not written yet");
    assert!(!path.exists(), "no new chain begins in silence");
    fs::rename(&away, &path).unwrap();
    eventually(|| text(&path).contains(r#""kind":"server""#)).await;
    audit.intent(intent(CallId::new())).await.unwrap();
    audit.close().await.unwrap();
    assert_eq!(verify(&path).unwrap().first_bad_line, None);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_refuses_calls_loses_no_outcome_and_heals() {
    let Some(disk) = fixture::SmallDisk::new(256) else { return };
    let path: PathBuf = disk.path();
    let audit = open(&path, Sync::Always, "gw");
    let calls: Vec<_> = (0..30).map(|_| CallId::new()).collect();
    for call in &calls {
        audit.intent(intent(*call)).await.unwrap();
    }
    disk.fill(0);
    let mut admitted = 0;
    while audit.intent(intent(CallId::new())).await.is_ok() {
        admitted += 1; // what is left of the last page
    }
    assert!(admitted < 20);
    let mut refused = 0;
    for call in &calls {
        refused += usize::from(audit.outcome(outcome(*call)).await.is_err());
    }
    assert!(refused > 10, "outcomes are small, but not that small");
    assert_eq!(verify(&path).unwrap().first_bad_line, None);
    disk.empty();
    eventually(|| text(&path).matches(r#""kind":"outcome""#).count() == calls.len()).await;
    audit.intent(intent(CallId::new())).await.unwrap();
    audit.close().await.unwrap();
    let found = verify(&path).unwrap();
    assert_eq!((found.records, found.first_bad_line), (61 + admitted, None));
    assert_eq!(found.interrupted.len() as u64, admitted + 1);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn closing_on_a_full_disk_says_what_is_lost() {
    let Some(disk) = fixture::SmallDisk::new(64) else { return };
    let audit = open(&disk.path(), Sync::Batch, "gw");
    disk.fill(0);
    for _ in 0..50 {
        audit.outcome(outcome(CallId::new()));
    }
    let fault = audit.close().await.unwrap_err();
    assert!(fault.inward.contains("records are lost"), "{fault}");
}
