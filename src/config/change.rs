//! A configuration held against the one in force: what stands against it, and what it changes. Knows nothing of who
//! carries it out.
//!
//! Values are compared as they are, secrets too, and nothing is derived from them: so there is nothing to show or to keep.

use super::fault::{Faults, Sink};
use super::{Audit, Config, Gateway, Network, Server, StdioFront};

/// Everything that keeps `new` from taking the place of `old` in a gateway that runs: what only a start can change, and
/// servers that lack something which they did not lack before.
pub fn objections(old: &Config, new: &Config) -> Result<(), Faults> {
    let sink = Sink::default();
    for key in fixed(old, new) {
        sink.whole(format!("{key} cannot be changed while the gateway runs: that needs a restart"));
    }
    for server in &new.servers {
        // At a start such a server is disabled and the others serve. Here something would end that is served.
        let lacked = |text: &str| old.server(server.name.as_str()).is_some_and(|s| s.lacks.iter().any(|l| l.1 == text));
        server.lacks.iter().filter(|(_, text)| !lacked(text)).for_each(|(at, text)| sink.add(*at, text));
    }
    sink.finish(&new.path, Some(()))
}

/// The keys that differ and that only a start can change. Taken apart whole, so that a new key cannot be forgotten here.
fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let Config {
        // The same file by whatever name; a server's part of it is looked at server by server.
        path: _,
        digest: _,
        gateway: Gateway { name, names: _, start: _, approval: _ },
        stdio: StdioFront { id, role: _ },
        limits: _,
        total: _,
        audit: Audit { path, arguments, sync },
        // What is baked is not baked by a gateway.
        registry: _,
        servers: _,
        notes: _,
    } = new;
    let all = [
        // Clients were told it when they came.
        ("gateway.name", *name == old.gateway.name),
        // Instances, volumes and limits are of whom they are.
        ("front.stdio.id", *id == old.stdio.id),
        ("audit.path", *path == old.audit.path),
        ("audit.arguments", *arguments == old.audit.arguments),
        ("audit.sync", *sync == old.audit.sync),
    ];
    all.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
}

/// The keys beside the servers' that differ and take effect at once.
pub fn general(old: &Config, new: &Config) -> Vec<&'static str> {
    let all = [
        ("gateway.names", old.gateway.names == new.gateway.names),
        ("gateway.start", old.gateway.start == new.gateway.start),
        ("gateway.approval", old.gateway.approval == new.gateway.approval),
        ("front.stdio.role", old.stdio.role == new.stdio.role),
        ("limits", old.limits == new.limits),
        ("limits.total", old.total == new.total),
    ];
    all.into_iter().filter(|(_, same)| !same).map(|(key, _)| key).collect()
}

impl Server {
    /// Whether an instance of `self` is one of `other`, too: nothing differs of what runs, of what it is given, of how it
    /// is confined, or of what it was told to keep to when it was started. All else is looked at anew with every call.
    pub fn runs_like(&self, other: &Server) -> bool {
        // Taken apart whole, so that a new field cannot be forgotten here.
        let Server {
            name,
            run,
            disabled,
            lacks: _,
            min_role: _,
            tools: _,
            resources,
            network,
            egress_limits,
            env,
            share,
            state,
            cache,
            mounts,
            writable_root,
            uid,
            limits: _,
            timeout: _,
            max_time: _,
            start_timeout: _,
            idle_stop: _,
            max_result,
            digest,
            settings: _,
        } = self;
        *name == other.name
            && *run == other.run
            && disabled.is_some() == other.disabled.is_some()
            && *resources == other.resources
            && *network == other.network
            && *egress_limits == other.egress_limits
            && *env == other.env
            && *share == other.share
            && *state == other.state
            && *cache == other.cache
            && *mounts == other.mounts
            && *writable_root == other.writable_root
            && *uid == other.uid
            && *max_result == other.max_result
            && *digest == other.digest
    }

    /// Whether what is decided with every call, and the times beside that, are the same as `other`'s.
    pub fn is_ruled_like(&self, other: &Server) -> bool {
        self.min_role == other.min_role
            && self.tools == other.tools
            && self.limits == other.limits
            && (self.timeout, self.max_time) == (other.timeout, other.max_time)
            && (self.start_timeout, self.idle_stop) == (other.start_timeout, other.idle_stop)
    }

    /// Whether it may reach something, or as much of it, not any more under `new`; nothing may where that is none.
    pub fn may_reach_less(&self, new: Option<&Server>) -> bool {
        self.network.is_narrowed_by(new.map(|new| &new.network))
            || matches!(self.network, Network::Guarded { .. })
                && new.is_some_and(|new| new.egress_limits.are_tighter_than(self.egress_limits))
    }
}

impl Network {
    /// Whether something of it may not be reached any more under `new`; nothing may where that is none.
    fn is_narrowed_by(&self, new: Option<&Network>) -> bool {
        match (self, new) {
            (Network::None, _) => false,
            (old, Some(new)) if old == new => false,
            (Network::Guarded { rules, host_ports }, Some(Network::Guarded { rules: still, host_ports: ports })) => {
                let named = rules.iter().all(|rule| still.iter().any(|other| other == rule));
                !named || !host_ports.iter().all(|port| ports.contains(port))
            }
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::toml;

    const BASE: &str = "[servers.a]\nimage = \"i\"\n";

    fn against(old: &str, new: &str) -> String {
        objections(&toml(old), &toml(new)).map_or_else(|faults| faults.to_string(), |()| String::new())
    }

    #[test]
    fn what_only_a_start_can_change_is_named() {
        for (table, key) in [
            ("[gateway]\nname = \"other\"\n", "gateway.name"),
            ("[front.stdio]\nid = \"other\"\n", "front.stdio.id"),
            ("[audit]\npath = \"other.jsonl\"\n", "audit.path"),
            ("[audit]\nsync = \"batch\"\n", "audit.sync"),
        ] {
            let said = against(BASE, &format!("{table}{BASE}"));
            assert!(said.ends_with(&format!(": {key} cannot be changed while the gateway runs: that needs a restart")));
            assert_eq!(against(&format!("{table}{BASE}"), &format!("{table}{BASE}")), "");
        }
        let free = "[gateway]\nnames = \"bare\"\nstart = \"eager\"\n[front.stdio]\nrole = \"admin\"\n\
                    [limits]\nrate = \"1/min\"\n[limits.total]\ninstances = 3\n";
        assert_eq!(against(BASE, &format!("{free}{BASE}")), "");
        let named = general(&toml(BASE), &toml(&format!("{free}{BASE}")));
        assert_eq!(named, ["gateway.names", "gateway.start", "front.stdio.role", "limits", "limits.total"]);
    }

    #[test]
    fn what_a_server_lacks_stands_against_it_with_its_place_unless_it_lacked_that_before() {
        let lacking = "[servers.a]\nimage = \"i\"\nsecrets = { A = \"env:NOPE\" }\n";
        for old in [BASE, ""] {
            let said = against(old, lacking);
            assert!(
                said.ends_with(".toml:3:13: servers.a.secrets.A needs the variable \"NOPE\", which is not set"),
                "{said}"
            );
        }
        assert_eq!(against(lacking, &format!("{lacking}pids = 9\n")), "");
        assert_eq!(against(BASE, &format!("{lacking}disabled = true\n")), "", "as it is asked for");
        let said = against(lacking, &lacking.replace("NOPE", "NEITHER"));
        assert!(said.contains("NEITHER"), "{said}");
    }

    #[test]
    fn whatever_an_instance_was_started_with_makes_another_one_and_rules_do_not() {
        let of = |lines: &str| toml(&format!("{BASE}{lines}\n")).servers.remove(0);
        let base = of("");
        for line in [
            "args = [\"x\"]",
            "pids = 9",
            "memory = \"64m\"",
            "cpus = 0.25",
            "env = { A = \"1\" }",
            "secrets = { A = \"env:TOK\" }",
            "egress = [\"a.org:443\"]",
            "host_ports = [1]",
            "share = \"all\"",
            "state = \"/data\"",
            "cache = true",
            "writable_root = true",
            "user = 1234",
            "max_result = \"1m\"",
            "disabled = true",
        ] {
            assert!(!of(line).runs_like(&base), "{line}");
        }
        for line in [
            "min_role = \"admin\"",
            "tools = { deny = [\"x\"] }",
            "limits = { rate = \"1/min\" }",
            "timeout = \"1s\"",
            "max_time = \"2h\"",
            "start_timeout = \"9s\"",
            "idle_stop = \"9s\"",
        ] {
            assert!(of(line).runs_like(&base) && !of(line).is_ruled_like(&base), "{line}");
        }
        assert!(base.runs_like(&of("")) && base.is_ruled_like(&of("")));
    }

    #[test]
    fn a_secret_that_is_another_makes_another_one_although_the_digest_is_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        let with = |secret: &str| {
            std::fs::write(&file, secret).unwrap();
            toml(&format!("{BASE}secrets = {{ A = \"file:{}\" }}\n", file.display())).servers.remove(0)
        };
        let (one, same, other) = (with("s3cr3t-1"), with("s3cr3t-1\n"), with("s3cr3t-2"));
        assert_eq!(one.digest, other.digest);
        assert!(one.runs_like(&same) && !one.runs_like(&other));
    }

    #[test]
    fn a_network_is_narrowed_by_what_it_loses_and_not_by_what_it_gains() {
        let of = |lines: &str| toml(&format!("{BASE}{lines}\n")).servers.remove(0).network;
        let both = of("egress = [\"a.org:443\", \"b.org:443\"]\nhost_ports = [1, 2]");
        let more = of("egress = [\"b.org:443\", \"a.org:443\", \"c.org:443\"]\nhost_ports = [3, 2, 1]");
        let ports = of("host_ports = [1, 2]");
        assert!(!both.is_narrowed_by(Some(&both)) && !both.is_narrowed_by(Some(&more)));
        assert!(more.is_narrowed_by(Some(&both)) && both.is_narrowed_by(Some(&ports)));
        assert!(ports.is_narrowed_by(Some(&of("host_ports = [1]"))) && ports.is_narrowed_by(Some(&Network::None)));
        assert!(ports.is_narrowed_by(None) && !Network::None.is_narrowed_by(None));
        assert!(!Network::None.is_narrowed_by(Some(&both)));
    }

    #[test]
    fn less_is_also_less_of_the_same() {
        let of = |lines: &str| toml(&format!("{BASE}{lines}\n")).servers.remove(0);
        let with = |limit: &str| of(&format!("host_ports = [1]\negress_limits = {{ {limit} }}"));
        let plain = with("");
        for (tight, wide) in [
            ("connections = 63", "connections = 65"),
            ("connect = \"14s\"", "connect = \"16s\""),
            ("request = \"29s\"", "request = \"31s\""),
            ("idle = \"59m\"", "idle = \"61m\""),
            ("bytes_per_day = \"9k\"", ""),
            ("bytes_per_day = \"9k\"", "bytes_per_day = \"10k\""),
        ] {
            assert!(with(wide).may_reach_less(Some(&with(tight))) && !with(tight).may_reach_less(Some(&with(wide))));
        }
        assert!(plain.may_reach_less(None) && plain.may_reach_less(Some(&of(""))) && !of("").may_reach_less(None));
        assert!(!plain.may_reach_less(Some(&plain)) && !plain.may_reach_less(Some(&of("host_ports = [1]\npids = 9"))));
    }
}
