//! Servers that are confined as asked are proven and can be used, in any image.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::{FIXTURE, Gateway, Talk, fixture, server, socket};

const GRACE: Duration = Duration::from_secs(5);

async fn ends_well(gateway: &Gateway, talk: Talk) {
    let ending = talk.end(GRACE).await;
    assert_eq!((ending.code, ending.killed, ending.oom), (Some(0), false, false));
    assert_eq!(gateway.containers().await, Vec::<String>::new(), "its end is the end of its container");
}

#[tokio::test]
async fn a_server_is_proven_can_be_used_and_ends_with_its_input() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&fixture(&[])).await;
    assert!(talk.confined.evidence.controls.iter().all(|c| c.holds));
    talk.greet().await;
    let (text, _) = talk.call("whoami", json!({})).await;
    let seen: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&seen["uid"], &seen["gid"], &seen["hostname"]), (&json!(10001), &json!(10001), &json!("server")));
    assert_eq!(seen["net"], json!(["lo"]));
    ends_well(&gateway, talk).await;
}

#[tokio::test]
async fn its_environment_is_what_is_declared_and_nothing_else() {
    let gateway = Gateway::new();
    let entry = format!("image = {FIXTURE:?}\nenv = {{ TZ = \"UTC\", A = \"x y=z\" }}");
    let mut talk = gateway.talk(&server(&entry)).await;
    talk.greet().await;
    let (text, _) = talk.call("env", json!({})).await;
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let declared = json!({ "A": "x y=z", "HOME": "/home/mcp", "LANG": "C.UTF-8", "PATH": path, "TZ": "UTC" });
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), declared);
    ends_well(&gateway, talk).await;
}

#[tokio::test]
async fn the_runtime_image_is_proven_with_node_and_with_python() {
    let gateway = Gateway::new();
    let node = r#"process.stdin.pipe(process.stdout)"#;
    let python = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)";
    for command in [json!(["node", "-e", node]), json!(["python3", "-c", python])] {
        let mut talk = gateway.talk(&server(&format!("image = \"bulkhead/runtime\"\ncommand = {command}"))).await;
        talk.send(json!({ "ping": 1 })).await;
        assert_eq!(talk.line().await.as_deref(), Some(r#"{"ping":1}"#));
        ends_well(&gateway, talk).await;
    }
}

/// The probe's own image has nothing but the probe: no shell, no library, not even a directory for the rest.
#[tokio::test]
async fn an_image_without_a_shell_is_proven() {
    let gateway = Gateway::new();
    // It reads its input for as long as there is any, and then becomes a command that is not there.
    let again = "image = \"bulkhead/probe\"\ncommand = [\"/probe/probe\", \"second\", \"/none\"]";
    let cause = gateway.cause(&server(again)).await;
    assert!(cause.contains("cannot run \"/none\"") && cause.ends_with(": exit code 127"), "{cause}");
    gateway.is_clean().await;
}

#[tokio::test]
async fn it_reaches_itself_by_name_and_nothing_else() {
    let gateway = Gateway::new();
    let script = r#"
import socket
own = socket.create_server(("localhost", 0))
socket.create_connection(own.getsockname(), 5)
print("itself", flush=True)
for host in ("172.17.0.1", "169.254.169.254", "1.1.1.1"):
    try:
        socket.create_connection((host, 80), 3)
        print(host, "reached", flush=True)
    except OSError as e:
        print(host, e.errno, flush=True)
"#;
    let entry = format!("image = {FIXTURE:?}\ncommand = {}", json!(["python3", "-c", script]));
    let mut talk = gateway.talk(&server(&entry)).await;
    assert_eq!(talk.line().await.as_deref(), Some("itself"));
    for host in ["172.17.0.1", "169.254.169.254", "1.1.1.1"] {
        // ENETUNREACH
        assert_eq!(talk.line().await, Some(format!("{host} 101")));
    }
    ends_well(&gateway, talk).await;
}

#[tokio::test]
async fn its_root_is_read_only_and_its_places_in_memory_are_not() {
    let gateway = Gateway::new();
    let mut talk = gateway.talk(&fixture(&[])).await;
    talk.greet().await;
    let (mounts, _) = talk.call("read", json!({ "path": "/proc/self/mountinfo" })).await;
    let mut places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let probe = places.find(|place| place.starts_with("/.bulkhead-")).expect("the probe's place");
    let probe = format!("{probe}/probe");
    for path in ["/x", "/etc/x", "/data/x", &probe, "/sys/x", "/proc/sys/kernel/hostname"] {
        let (text, error) = talk.call("write", json!({ "path": path, "content": "x" })).await;
        let why = ["Read-only file system", "Permission denied"];
        assert!(error && why.iter().any(|why| text.contains(why)), "{path}: {text}");
    }
    for path in ["/tmp/x", "/run/x", "/home/mcp/x", "/dev/shm/x"] {
        let (text, error) = talk.call("write", json!({ "path": path, "content": "x" })).await;
        assert!(!error, "{path}: {text}");
    }
    ends_well(&gateway, talk).await;
}

#[tokio::test]
async fn a_writable_root_is_given_where_it_is_asked_for() {
    let gateway = Gateway::new();
    let entry = format!("image = {FIXTURE:?}\nwritable_root = true");
    let mut talk = gateway.talk(&server(&entry)).await;
    let root = talk.confined.evidence.controls.iter().find(|c| c.control == "root file system").unwrap();
    assert_eq!((root.asked.as_str(), root.inside.as_str()), ("writable", "writable"));
    talk.greet().await;
    // A directory of the image that belongs to its user.
    let (text, error) = talk.call("write", json!({ "path": "/data/x", "content": "x" })).await;
    assert!(!error, "{text}");
    ends_well(&gateway, talk).await;
}

/// As with an engine in a virtual machine or on another host: nothing of the proof needs this machine's own files.
#[tokio::test]
async fn an_engine_that_is_reached_over_tcp_proves_the_same() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let forwarder = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut engine = tokio::net::UnixStream::connect(socket()).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut engine).await;
            });
        }
    });
    let gateway = Gateway::at(vec![address]);
    let mut talk = gateway.talk(&fixture(&[])).await;
    talk.greet().await;
    ends_well(&gateway, talk).await;
    forwarder.abort();
}
