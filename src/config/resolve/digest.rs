//! One digest over what runs and how it is confined, without any secret. Knows nothing of who compares it.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::config::{Network, Server};

/// SHA-256 over the resolved entry, lower-case hex. What runs and the environment go in as they were written, so that
/// the digest changes with the configuration but not with the value of a variable or secret.
pub(super) fn digest(server: &Server, run: &[(&'static str, Vec<String>)], env: &BTreeMap<String, String>) -> String {
    // Taken apart whole, so that a new field cannot be forgotten here.
    let Server {
        name: _,
        run: _,
        env: _,
        digest: _,
        settings: _,
        disabled: _,
        lacks: _,
        // Who may call what, how often and for how long is decided anew with every call; it changes nothing of what runs.
        min_role: _,
        tools: _,
        limits: _,
        // How much a connection may carry is said to the gateway alone.
        egress_limits: _,
        timeout: _,
        max_time: _,
        start_timeout: _,
        idle_stop: _,
        max_result: _,
        resources,
        network,
        share,
        state,
        cache,
        mounts,
        writable_root,
        uid,
    } = server;
    let mut sum = Sum(Sha256::new());
    for (label, texts) in run {
        sum.put(label, texts);
    }
    sum.put("env", &env.iter().map(|(name, written)| format!("{name}{written}")).collect::<Vec<_>>());
    let plain = [
        ("resources", format!("{resources:?}")),
        ("share", format!("{share:?}")),
        ("state", format!("{state:?}")),
        ("cache", format!("{cache}")),
        ("mounts", format!("{mounts:?}")),
        ("writable_root", format!("{writable_root}")),
        ("uid", format!("{uid}")),
    ];
    for (label, text) in plain {
        sum.put(label, &[text]);
    }
    // Left out where there is nothing, so that what was locked before there was such a key stays locked.
    match network {
        Network::None => {}
        Network::Guarded { rules, host_ports } => {
            sum.put("network", &[rules.to_string(), format!("{host_ports:?}")]);
        }
        Network::Bridge => sum.put("network", &["bridge".to_owned()]),
    }
    crate::hex(&sum.0.finalize())
}

struct Sum(Sha256);

impl Sum {
    /// Every text with its length before it, so that no two entries run together to the same bytes.
    fn put(&mut self, label: &str, texts: &[String]) {
        self.text(label);
        self.0.update((texts.len() as u64).to_be_bytes());
        texts.iter().for_each(|text| self.text(text));
    }

    fn text(&mut self, text: &str) {
        self.0.update((text.len() as u64).to_be_bytes());
        self.0.update(text.as_bytes());
    }
}
