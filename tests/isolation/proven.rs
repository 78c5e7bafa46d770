//! Servers that are confined as asked are proven and can be used, in any image.

use super::support::{FIXTURE, Gateway, fixture, server};

#[tokio::test]
async fn a_server_is_proven_and_can_be_used() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&fixture(&[])).await;
    for c in &talk.confined.evidence.controls {
        println!("{c:?}");
    }
    talk.greet().await;
    let (text, error) = talk.call("whoami", serde_json::json!({})).await;
    println!("{text}");
    assert!(!error);
    let ending = talk.end(std::time::Duration::from_secs(5)).await;
    assert_eq!((ending.code, ending.killed, ending.oom), (Some(0), false, false));
    gateway.is_clean().await;
}
