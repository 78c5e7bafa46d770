//! Whether this principal may call this tool, and whether it may now. Knows nothing of JSON-RPC, engines or runtimes.
//!
//! [`policy`] answers the first question, the same way for a list and for a call; [`limits`] answers the second, for calls
//! only: a list costs nothing.

pub mod limits;
pub mod policy;

pub use limits::{Limited, Limiter, Permit};
pub use policy::{Decision, decide, digest, may_know};

#[cfg(test)]
mod fixture {
    //! A principal and a server as small as they can be.

    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::config::{Network, Reason, Resources, Run, Server, Share, ToolRules};
    use crate::name::{Principal, Role, ServerName};

    pub fn principal(id: &str, role: Role) -> Principal {
        Principal { id: Some(id.into()), role }
    }

    pub fn server(name: &str) -> Server {
        Server {
            name: ServerName::parse(name).unwrap(),
            run: Run::Unisolated { reason: Reason::parse("a test").unwrap(), command: vec!["true".into()] },
            disabled: None,
            lacks: Vec::new(),
            min_role: Role::User,
            tools: ToolRules::default(),
            resources: Resources { memory: 1 << 20, cpus: 1.0, pids: 1 },
            network: Network::None,
            egress_limits: Default::default(),
            env: BTreeMap::new(),
            share: Share::Principal,
            state: None,
            cache: false,
            mounts: Vec::new(),
            writable_root: false,
            uid: 10001,
            limits: None,
            timeout: Duration::from_secs(1),
            max_time: Duration::from_secs(1),
            start_timeout: Duration::from_secs(1),
            idle_stop: Duration::from_secs(1),
            max_result: 1024,
            digest: String::new(),
            settings: std::collections::BTreeMap::new(),
        }
    }
}
