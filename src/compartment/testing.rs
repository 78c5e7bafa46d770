//! Compartments for the tests of this module: from the entries that people write, with nothing in them left to chance.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::config::env::Fixed;
use crate::config::resolve::load;
use crate::config::{Mount, Network, Server};

use super::fence::Fence;
use super::guard::Guard;
use super::image::ImageFacts;
use super::lease::Lease;
use super::owner::Owner;
use super::seat::Seat;
use super::spec::Compartment;

/// The volume that has the probe.
pub(super) const PROBE_VOLUME: &str = "bulkhead-probe-0123456789abcdef";
/// The nonce of every compartment here.
pub(super) const NONCE: &str = "00112233445566778899aabbccddeeff";

/// The server that an entry of a configuration file means.
pub(super) fn server(entry: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bulkhead.toml");
    std::fs::write(&path, format!("[servers.\"My Notes\"]\n{entry}\n")).unwrap();
    let config = load(&path, &Fixed::from([("TOKEN", "s3cr3t")])).unwrap_or_else(|faults| panic!("{faults}"));
    let server = config.servers.into_iter().next().unwrap();
    // The digest changes with every new key of the configuration, which is nothing to what is tested here.
    Server { digest: "d1".repeat(32), ..server }
}

/// An image with a program, arguments and variables of its own.
pub(super) fn image() -> ImageFacts {
    let env = [("PATH", "/app/bin:/usr/bin"), ("NODE_VERSION", "22"), ("HOME", "/root")];
    ImageFacts {
        id: format!("sha256:{}", "ab".repeat(32)),
        entrypoint: vec!["node".into(), "server.js".into()],
        command: vec!["--stdio".into()],
        env: env.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        volumes: Vec::new(),
    }
}

/// A gateway's process.
pub(super) fn owner() -> Owner {
    Owner {
        gateway: "g1".into(),
        host: "h1".into(),
        boot: "b1".into(),
        pid: 7,
        started: "99".into(),
        principal: "alice".into(),
        scope: "configuration".to_owned(),
        keeper: String::new(),
    }
}

/// The lease of every compartment here: until 2027-01-16T08:00:00Z.
pub(super) fn lease() -> Lease {
    Lease::new(SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000), Duration::from_secs(86_400))
}

/// A host path that a server may see.
pub(super) fn bind(host: &str, at: &str, write: bool) -> Mount {
    Mount { host: PathBuf::from(host), within: Some(PathBuf::from(host)), at: at.to_owned(), write }
}

/// The guard, or the fence, of every server that has one here.
pub(super) const GUARD: &str = "9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a9a";

/// Its network as the kernel names it.
pub(super) const NAMESPACE: &str = "net:[4026532633]";

/// The compartment of a server, behind its guard or within its fence where it has one.
pub(super) fn planned(server: &Server) -> Compartment {
    let planned = match server.network {
        Network::None => Compartment::plan(server, &image(), &owner(), lease()),
        Network::Guarded { .. } => {
            Compartment::behind(server, &image(), &owner(), lease(), &Guard::of(server, &owner(), GUARD))
        }
        Network::Bridge => {
            Compartment::within(server, &image(), &owner(), lease(), &Fence::of(server, &owner(), GUARD))
        }
    };
    let mut compartment = planned.unwrap_or_else(|fault| panic!("{fault}"));
    compartment.nonce = NONCE.to_owned();
    compartment.seat = Some(Arc::new(Seat::of("1")));
    compartment
}
