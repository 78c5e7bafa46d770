//! However a server ends, nothing of it is left, and how it ended is known.

use std::time::{Duration, Instant};

use bulkhead::error::Class;
use serde_json::json;

use super::support::{FIXTURE, Gateway, LONG, fixture, server};

#[tokio::test]
async fn one_that_ignores_the_end_of_its_input_is_stopped() {
    let gateway = Gateway::new();
    let talk = gateway.talk(&fixture(&["--ignore-eof"])).await;
    let ending = talk.end(Duration::from_millis(300)).await;
    assert!(ending.killed && ending.code == Some(143), "{ending:?}");
    assert!(gateway.containers().await.is_empty());
}

#[tokio::test]
async fn one_that_ignores_every_request_to_end_is_killed() {
    let gateway = Gateway::new();
    let talk = gateway.talk(&fixture(&["--ignore-eof", "--ignore-term", "--fork"])).await;
    let began = Instant::now();
    let ending = talk.end(Duration::from_millis(300)).await;
    assert!(ending.killed && ending.code == Some(137) && !ending.oom, "{ending:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(gateway.containers().await.is_empty());
}

#[tokio::test]
async fn a_command_that_is_not_there_ends_with_its_cause() {
    let gateway = Gateway::new();
    let cause = gateway.cause(&server(&format!("image = {FIXTURE:?}\ncommand = [\"/no/such\", \"x\"]"))).await;
    assert!(cause.contains("cannot run \"/no/such\": No such file or directory"), "{cause}");
    assert!(cause.ends_with(": exit code 127"), "{cause}");
    let cause = gateway.cause(&server(&format!("image = {FIXTURE:?}\ncommand = [\"/etc\"]"))).await;
    assert!(cause.ends_with(": exit code 126"), "{cause}");
    gateway.is_clean().await;
}

#[tokio::test]
async fn one_that_crashes_ends_with_its_code_and_its_last_words() {
    let gateway = Gateway::new();
    let cause = gateway.cause(&fixture(&["--exit-at-start", "3", "--last-words", "no licence"])).await;
    assert!(cause.contains("no licence") && cause.ends_with(": exit code 3"), "{cause}");
    gateway.is_clean().await;
}

#[tokio::test]
async fn one_that_uses_up_its_memory_ends_with_that_cause() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&server(&format!("image = {FIXTURE:?}\nmemory = \"64m\""))).await;
    talk.greet().await;
    talk.throw("oom", json!({})).await;
    while talk.line().await.is_some() {}
    let ending = talk.end(LONG).await;
    assert!(ending.oom && ending.code == Some(137) && !ending.killed, "{ending:?}");
    assert!(gateway.containers().await.is_empty());
}

#[tokio::test]
async fn an_image_that_is_not_there_is_a_refusal_and_never_a_download() {
    let gateway = Gateway::new();
    let began = Instant::now();
    let fault = gateway.start(&server("image = \"bulkhead/none-such:1\"")).await.err().unwrap();
    assert_eq!(fault.class, Class::Isolation);
    assert!(fault.outward.contains("\"bulkhead/none-such:1\" is not on the engine"), "{}", fault.outward);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn standard_error_and_noise_are_read_however_much_it_is() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&fixture(&[])).await;
    talk.greet().await;
    talk.call("stderr", json!({ "bytes": 8 << 20 })).await;
    // The engine keeps no order between the two streams: the answer may come before the last of the errors.
    let all = async {
        while talk.errors().len() < 8 << 20 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, all).await.expect("all of its standard error in time");
    talk.call("noise", json!({ "lines": 100_000 })).await;
    let (text, _) = talk.call("big", json!({ "bytes": 8 << 20 })).await;
    assert_eq!(text.len(), 8 << 20);
    assert_eq!(talk.end(LONG).await.code, Some(0));
}

#[tokio::test]
async fn a_flood_before_anything_is_proven_is_read_too() {
    let gateway = Gateway::new();
    let flood = "import sys; sys.stderr.write('x' * (4 << 20)); sys.stderr.flush(); print('there', flush=True)";
    let entry = format!("image = {FIXTURE:?}\ncommand = {}", json!(["python3", "-c", flood]));
    let mut talk = gateway.talk(&server(&entry)).await;
    assert_eq!(talk.line().await.as_deref(), Some("there"));
    assert_eq!(talk.end(LONG).await.code, Some(0));
}

/// As when the gateway is killed: nobody ends the container, the engine only sees that the connection is gone.
#[tokio::test]
async fn a_lost_connection_is_the_end_of_it() {
    let gateway = Gateway::new();
    let confined = gateway.start(&fixture(&[])).await.unwrap();
    std::mem::forget(confined.link.process);
    assert_eq!(gateway.containers().await, [confined.container]);
    drop((confined.link.input, confined.link.output));
    gateway.is_clean().await;
}

#[tokio::test]
async fn a_link_that_is_dropped_takes_its_container_along() {
    let gateway = Gateway::new();
    for flags in [&[][..], &["--ignore-eof", "--ignore-term"]] {
        drop(gateway.start(&fixture(flags)).await.unwrap());
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn many_at_once_are_proven_and_all_are_gone_afterwards() {
    let gateway = Gateway::new();
    let server = fixture(&[]);
    let starts = (0..8).map(|_| async {
        let mut talk = gateway.talk(&server).await;
        talk.greet().await;
        talk.end(LONG).await
    });
    let endings = futures_util::future::join_all(starts).await;
    assert!(endings.iter().all(|ending| ending.code == Some(0)), "{endings:?}");
    assert!(gateway.containers().await.is_empty());
}
