//! What a server keeps and sees: state and cache on volumes of its own, host paths that were asked for.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use bollard::models::VolumeCreateRequest;
use bulkhead::compartment;
use bulkhead::config::{Mount, Server};
use bulkhead::error::Class;
use serde_json::json;

use super::proxy::{Call, Proxy};
use super::support::{FIXTURE, Gateway, LONG, Talk, docker, fixture, remove_volume, server};

/// A place that the fixture's image does not have.
const PLACE: &str = "/keep/here";

fn keeping(uid: u32) -> Server {
    server(&format!("image = {FIXTURE:?}\nstate = {PLACE:?}\nuser = {uid}"))
}

fn volume_of(gateway: &Gateway, kind: &str) -> String {
    format!("bulkhead-{kind}-s-{}", gateway.owner.volume_key())
}

async fn forget(gateway: &Gateway) {
    remove_volume(&volume_of(gateway, "state")).await;
    remove_volume(&volume_of(gateway, "cache")).await;
}

async fn write(talk: &mut Talk, path: &str, content: &str) -> Result<(), String> {
    let (text, error) = talk.call("write", json!({ "path": path, "content": content })).await;
    if error { Err(text) } else { Ok(()) }
}

async fn read(talk: &mut Talk, path: &str) -> Option<String> {
    let (text, error) = talk.call("read", json!({ "path": path })).await;
    (!error).then_some(text)
}

async fn open(gateway: &Gateway, server: &Server) -> Talk {
    let mut talk = gateway.talk(server).await;
    talk.greet().await;
    talk
}

async fn close(talk: Talk) {
    assert_eq!(talk.end(Duration::from_secs(10)).await.code, Some(0));
}

#[tokio::test]
async fn state_is_its_users_stays_and_belongs_to_one_principal() {
    for uid in [10001, 20001] {
        let gateway = Gateway::new();
        let file = format!("{PLACE}/note");
        let mut talk = open(&gateway, &keeping(uid)).await;
        write(&mut talk, &file, "mine").await.unwrap();
        close(talk).await;
        let mut again = open(&gateway, &keeping(uid)).await;
        assert_eq!(read(&mut again, &file).await.as_deref(), Some("mine"));
        close(again).await;
        // Another gateway of the same principal prepares the volume anew, and takes nothing away.
        let restarted = Gateway { owner: gateway.owner.clone(), ..Gateway::new() };
        let mut again = open(&restarted, &keeping(uid)).await;
        assert_eq!(read(&mut again, &file).await.as_deref(), Some("mine"));
        write(&mut again, &file, "still mine").await.unwrap();
        close(again).await;
        let other = Gateway::new();
        let mut others = open(&other, &keeping(uid)).await;
        assert_eq!(read(&mut others, &file).await, None);
        close(others).await;
        forget(&gateway).await;
        forget(&other).await;
    }
}

/// The home directory is in memory, unless it is what is to be kept: then the engine must not make both.
#[tokio::test]
async fn state_at_home_is_kept_and_not_in_memory() {
    let gateway = Gateway::new();
    let home = server(&format!("image = {FIXTURE:?}\nstate = \"/home/mcp\""));
    let mut talk = open(&gateway, &home).await;
    write(&mut talk, "/home/mcp/note", "mine").await.unwrap();
    close(talk).await;
    let mut again = open(&gateway, &home).await;
    assert_eq!(read(&mut again, "/home/mcp/note").await.as_deref(), Some("mine"));
    close(again).await;
    gateway.is_clean().await;
    forget(&gateway).await;
}

#[tokio::test]
async fn a_cache_is_there_at_the_users_own_place() {
    let gateway = Gateway::new();
    let cached = server(&format!("image = {FIXTURE:?}\ncache = true"));
    let mut talk = open(&gateway, &cached).await;
    write(&mut talk, "/home/mcp/.cache/x", "kept").await.unwrap();
    close(talk).await;
    let mut talk = open(&gateway, &cached).await;
    assert_eq!(read(&mut talk, "/home/mcp/.cache/x").await.as_deref(), Some("kept"));
    close(talk).await;
    forget(&gateway).await;
}

#[tokio::test]
async fn a_volume_that_somebody_removed_is_prepared_again() {
    let gateway = Gateway::new();
    let file = format!("{PLACE}/note");
    let mut talk = open(&gateway, &keeping(10001)).await;
    write(&mut talk, &file, "first").await.unwrap();
    close(talk).await;
    forget(&gateway).await;
    let mut talk = open(&gateway, &keeping(10001)).await;
    assert_eq!(read(&mut talk, &file).await, None);
    write(&mut talk, &file, "second").await.unwrap();
    close(talk).await;
    forget(&gateway).await;
}

#[tokio::test]
async fn a_volume_of_that_name_with_the_host_behind_it_is_refused() {
    let gateway = Gateway::new();
    let options = [("type", "none"), ("o", "bind"), ("device", "/etc")];
    let request = VolumeCreateRequest {
        name: Some(volume_of(&gateway, "state")),
        driver_opts: Some(options.map(|(k, v)| (k.to_owned(), v.to_owned())).into()),
        ..Default::default()
    };
    docker().await.create_volume(request).await.unwrap();
    let fault = gateway.start(&keeping(10001)).await.err().unwrap();
    assert_eq!(fault.class, Class::Isolation);
    assert!(fault.outward.contains("was not made by the gateway"), "{}", fault.outward);
    gateway.is_clean().await;
    forget(&gateway).await;
}

#[tokio::test]
async fn volumes_are_prepared_once() {
    let proxy = Proxy::new();
    let gateway = Gateway::at(proxy.addresses());
    close(open(&gateway, &keeping(10001)).await).await;
    let counts = || (proxy.count(Call::Create), proxy.count(Call::Archive));
    assert_eq!(counts(), (4, 1), "probe and what it is held against, state, server");
    let mut talk = open(&gateway, &keeping(10001)).await;
    write(&mut talk, &format!("{PLACE}/note"), "changes it").await.unwrap();
    close(talk).await;
    close(open(&gateway, &keeping(10001)).await).await;
    assert_eq!(counts(), (6, 1), "server, server");
    // As another user it is prepared for that one.
    close(open(&gateway, &keeping(20001)).await).await;
    assert_eq!(counts(), (8, 2), "state, server");
    forget(&gateway).await;
}

fn mounted(host: &Path, write: bool) -> Server {
    let mount = Mount { host: host.canonicalize().unwrap(), within: None, at: "/notes".into(), write };
    Server { mounts: vec![mount], ..fixture(&[]) }
}

#[tokio::test]
async fn host_paths_are_seen_as_asked_for() {
    let host = tempfile::tempdir().unwrap();
    std::fs::set_permissions(host.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(host.path().join("a"), "of the host").unwrap();
    let gateway = Gateway::new();
    let mut talk = open(&gateway, &mounted(host.path(), false)).await;
    let mounts = talk.confined.evidence.controls.iter().find(|c| c.control == "mounts").unwrap();
    assert_eq!((mounts.asked.as_str(), mounts.holds), ("/notes (ro)", true));
    assert_eq!(read(&mut talk, "/notes/a").await.as_deref(), Some("of the host"));
    let why = write(&mut talk, "/notes/b", "x").await.unwrap_err();
    assert!(why.contains("Read-only file system"), "{why}");
    close(talk).await;
    let mut talk = open(&gateway, &mounted(host.path(), true)).await;
    write(&mut talk, "/notes/b", "of the server").await.unwrap();
    close(talk).await;
    assert_eq!(std::fs::read_to_string(host.path().join("b")).unwrap(), "of the server");
    assert!(gateway.containers().await.is_empty());
}

#[tokio::test]
async fn a_host_path_that_leads_elsewhere_by_now_is_not_mounted() {
    let host = tempfile::tempdir().unwrap();
    let (path, secret) = (host.path().join("notes"), host.path().join("secret"));
    std::fs::create_dir(&path).unwrap();
    std::fs::create_dir(&secret).unwrap();
    let gateway = Gateway::new();
    let server = mounted(&path, false);
    let planned = gateway.plan(&server).await.unwrap();
    std::fs::rename(&path, host.path().join("before")).unwrap();
    std::os::unix::fs::symlink(&secret, &path).unwrap();
    let fault = compartment::start(&gateway.engine, planned, LONG).await.err().expect("a refusal");
    assert_eq!(fault.class, Class::Isolation);
    assert!(fault.outward.ends_with("leads elsewhere by now"), "{}", fault.outward);
    gateway.is_clean().await;
}

/// A file system of the host that is mounted below a path comes along with it, and as writable as it is on the host.
#[tokio::test]
async fn what_is_mounted_below_a_host_path_is_not_asked_for() {
    let host = tempfile::tempdir().unwrap();
    let below = host.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    let mounted_below = rustix::mount::mount("tmpfs", &below, "tmpfs", flags, None);
    let Ok(()) = mounted_below else { return };
    let gateway = Gateway::new();
    let fault = gateway.start(&mounted(host.path(), false)).await.err();
    rustix::mount::unmount(&below, rustix::mount::UnmountFlags::DETACH).unwrap();
    let fault = fault.expect("a refusal");
    assert_eq!(fault.class, Class::Isolation);
    assert!(fault.inward.contains("not asked for: /notes/below (rw)"), "{}", fault.inward);
    gateway.is_clean().await;
}
