//! An engine that is away, hangs, refuses or breaks off: an answer in time, and no container.

use std::time::{Duration, Instant};

use bollard::query_parameters::RemoveContainerOptionsBuilder;
use bulkhead::error::{Class, Fault};

use super::mutation::{entry, truth};
use super::proxy::{Call, Failure, Proxy};
use super::support::{Gateway, LONG, addresses, docker, fixture};

/// What starting the fixture server comes to, and how long that takes.
async fn fails(gateway: &Gateway, within: Duration) -> (Fault, Duration) {
    let began = Instant::now();
    let fault = gateway.start_within(&fixture(&[]), within).await.err().expect("a fault");
    (fault, began.elapsed())
}

#[tokio::test]
async fn an_engine_that_never_answers_is_told_within_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _silent = tokio::net::UnixListener::bind(&path).unwrap();
    let gateway = Gateway::at(vec![format!("unix://{}", path.display())]);
    let (fault, took) = fails(&gateway, LONG).await;
    assert_eq!(fault.class, Class::Engine);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(fault.inward.contains("no answer within"), "{}", fault.inward);
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_told_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let dead = dir.path().join("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    for path in [dead, dir.path().join("none")] {
        let gateway = Gateway::at(vec![format!("unix://{}", path.display())]);
        let (fault, took) = fails(&gateway, LONG).await;
        assert_eq!(fault.class, Class::Engine, "{}", fault.inward);
        assert!(took < Duration::from_secs(2), "{took:?}");
    }
}

#[tokio::test]
async fn an_engine_that_hangs_later_is_told_within_seconds_too() {
    for call in [Call::Create, Call::Start] {
        let proxy = Proxy::hanging_from(call);
        let gateway = Gateway::at(proxy.addresses());
        let (fault, took) = fails(&gateway, LONG).await;
        assert_eq!(fault.class, Class::Engine, "{call:?}: {}", fault.inward);
        assert!(took < Duration::from_secs(15), "{call:?}: {took:?}");
        assert!(fault.outward.contains("stopped answering"), "{}", fault.outward);
        // Nothing can be removed through it, and what is left has an owner that lives: so here it is removed by hand.
        let force = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        for id in gateway.containers().await {
            docker().await.remove_container(&id, Some(force.clone())).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_call_that_hangs_alone_ends_with_the_time_that_there_is() {
    for call in [Call::Create, Call::Attach, Call::Start, Call::Inspect] {
        let proxy = Proxy::failing(call, Failure::Delay(Duration::from_secs(4)));
        let gateway = Gateway::at(proxy.addresses());
        let (fault, took) = fails(&gateway, Duration::from_secs(2)).await;
        assert_eq!(fault.class, Class::Timeout, "{call:?}: {}", fault.inward);
        assert!(took < Duration::from_secs(9), "{call:?}: {took:?}");
        // It comes to the engine all the same, later: and then it is removed.
        tokio::time::sleep(Duration::from_secs(4).saturating_sub(took)).await;
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_leaves_nothing() {
    for call in [Call::Attach, Call::Start, Call::Inspect] {
        let proxy = Proxy::failing(call, Failure::HangAfter);
        let gateway = Gateway::at(proxy.addresses());
        let (fault, _) = fails(&gateway, Duration::from_secs(2)).await;
        assert_eq!(fault.class, Class::Timeout, "{call:?}: {}", fault.inward);
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn a_connection_that_breaks_off_leaves_nothing() {
    for call in [Call::Create, Call::Attach, Call::Start, Call::Inspect] {
        let proxy = Proxy::failing(call, Failure::CutAfter);
        let gateway = Gateway::at(proxy.addresses());
        let (fault, _) = fails(&gateway, LONG).await;
        assert_eq!(fault.class, Class::Engine, "{call:?}: {}", fault.inward);
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn an_error_of_the_engine_leaves_nothing() {
    for (call, status, class) in [
        (Call::Volume, 500, Class::Engine),
        (Call::Create, 500, Class::Engine),
        (Call::Attach, 500, Class::Engine),
        (Call::Start, 500, Class::Isolation),
        (Call::Start, 404, Class::Isolation),
        (Call::Inspect, 500, Class::Engine),
    ] {
        let proxy = Proxy::failing(call, Failure::Answer(status));
        let gateway = Gateway::at(proxy.addresses());
        let (fault, _) = fails(&gateway, LONG).await;
        assert_eq!(fault.class, class, "{call:?}: {}", fault.inward);
        assert!(fault.inward.contains("as the test wants it"), "{}", fault.inward);
        assert!(!fault.outward.contains("as the test wants it"), "{}", fault.outward);
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn a_warning_of_the_engine_is_a_refusal() {
    let warning = "Your kernel does not support swap limit capabilities. Memory limited without swap.";
    let gateway = Gateway::at(Proxy::warning(warning).addresses());
    assert_eq!(fails(&gateway, LONG).await.0.class, Class::Engine, "the proxy is gone");
    let proxy = Proxy::warning(warning);
    let gateway = Gateway::at(proxy.addresses());
    let (fault, _) = fails(&gateway, LONG).await;
    assert_eq!(fault.class, Class::Isolation);
    assert!(fault.outward.ends_with(warning), "{}", fault.outward);
    gateway.is_clean().await;
}

#[tokio::test]
async fn another_program_in_the_place_of_the_probe_is_found_out() {
    let forged = r#"echo '{"bulkhead_probe":1,"nonce":"guessed","cgroup_files":{},"env":[]}'; exec sleep 60"#;
    for command in [serde_json::json!(["sh", "-c", forged]), serde_json::json!(["sleep", "60"])] {
        let proxy = Proxy::changing(move |body| body["Entrypoint"] = command.clone());
        let gateway = Gateway::at(proxy.addresses());
        let (fault, took) = fails(&gateway, LONG).await;
        assert_eq!(fault.class, Class::Isolation, "{}", fault.inward);
        let found = ["first words are not the probe's", "(program"];
        assert!(found.iter().any(|found| fault.outward.contains(found)), "{}", fault.outward);
        assert!(took < Duration::from_secs(5), "{took:?}");
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn one_that_ends_before_it_is_looked_at_is_told_with_its_cause() {
    let proxy = Proxy::failing(Call::Inspect, Failure::Delay(Duration::from_secs(1)));
    let gateway = Gateway::at(proxy.addresses());
    let fault = gateway.start(&fixture(&["--exit-at-start", "3", "--last-words", "no licence"])).await.err().unwrap();
    assert_eq!(fault.class, Class::Crashed);
    let told = "server s: it ended before it could be proven; last lines of its stderr: no licence: exit code 3";
    assert_eq!(fault.outward, told);
    gateway.is_clean().await;
}

#[tokio::test]
async fn one_that_ends_before_its_report_is_told_with_its_cause() {
    let broken = serde_json::json!(["sh", "-c", "echo broken >&2; exit 9"]);
    let proxy = Proxy::lying(truth().await, move |body| body["Entrypoint"] = broken.clone());
    let gateway = Gateway::at(proxy.addresses());
    let fault = gateway.start(&entry()).await.err().unwrap();
    assert_eq!(fault.class, Class::Crashed, "{}", fault.inward);
    let told = "server s: it ended before anything could be proven; last lines of its stderr: broken: exit code 9";
    assert_eq!(fault.outward, told);
    gateway.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_is_given_up_leaves_nothing() {
    for call in [Call::Create, Call::Attach, Call::Start, Call::Inspect] {
        let proxy = Proxy::failing(call, Failure::Delay(Duration::from_secs(2)));
        let gateway = Gateway::at(proxy.addresses());
        // The volumes are there, so that it is the server's own container that is waited for.
        let server = fixture(&[]);
        let given_up = tokio::time::timeout(Duration::from_millis(1500), gateway.start(&server)).await;
        assert!(given_up.is_err(), "{call:?} was not slow enough");
        tokio::time::sleep(Duration::from_secs(2)).await;
        gateway.is_clean().await;
    }
}

#[tokio::test]
async fn an_engine_that_comes_back_is_found_again() {
    let proxy = Proxy::failing(Call::Start, Failure::CutAfter);
    let gateway = Gateway::at([proxy.addresses(), addresses()].concat());
    assert_eq!(fails(&gateway, LONG).await.0.class, Class::Engine);
    drop(proxy);
    let talk = gateway.talk(&fixture(&[])).await;
    assert_eq!(talk.end(LONG).await.code, Some(0));
    gateway.is_clean().await;
}

/// As when the engine is restarted: what could not be removed is removed once it is there again.
#[tokio::test]
async fn what_an_engine_could_not_remove_is_removed_when_it_is_back() {
    let proxy = Proxy::new();
    let gateway = Gateway::at(proxy.addresses());
    let mut talk = gateway.talk(&fixture(&["--ignore-eof"])).await;
    talk.greet().await;
    proxy.breaks();
    assert_eq!(talk.line().await, None, "its output is at an end");
    let began = Instant::now();
    let ending = talk.end(Duration::from_millis(300)).await;
    assert_eq!(ending.to_string(), "the container engine went away");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(gateway.containers().await.len(), 1);
    proxy.mends();
    gateway.is_clean().await;
}

#[tokio::test]
async fn a_wait_that_the_engine_fails_is_no_end() {
    for failure in [Failure::Answer(500), Failure::CutAfter] {
        let proxy = Proxy::failing(Call::Wait, failure);
        let gateway = Gateway::at(proxy.addresses());
        let talk = gateway.talk(&fixture(&["--ignore-eof"])).await;
        let ending = talk.end(Duration::from_millis(300)).await;
        assert!(ending.killed && ending.code == Some(143), "it ran, and was asked to end first: {ending:?}");
        gateway.is_clean().await;
        // One that ends by itself gets the time for it.
        let talk = gateway.talk(&fixture(&[])).await;
        let ending = talk.end(LONG).await;
        assert!(!ending.killed && ending.code == Some(0), "{ending:?}");
    }
}
