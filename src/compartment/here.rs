//! What this machine says of itself, where the engine runs on it: its public addresses, and who tells it names. Asks
//! nobody else; where there is no /proc, it knows nothing.

use std::fs::read_to_string;
use std::net::{IpAddr, Ipv4Addr};

use crate::egress::address::class;

use super::engine::Defaults;

/// Where name servers are listed; the second one is behind a server on the loopback that asks those in it.
const NAMES: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/// More than that nobody asks.
const MOST: usize = 3;

/// What is known of the engine's host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Here {
    /// Its addresses that are public; none where they are not known.
    pub addresses: Option<Vec<Ipv4Addr>>,
    /// Who tells it names; none where that is not known.
    pub names: Option<Vec<Ipv4Addr>>,
}

impl Here {
    /// Looks, if the engine that describes itself so is on this machine.
    pub fn look(engine: &Defaults) -> Self {
        let of_kernel = |name: &str| read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
        let (name, kernel) = (of_kernel("hostname"), of_kernel("osrelease"));
        let same = !kernel.trim().is_empty() && kernel.trim() == engine.kernel && name.trim() == engine.host;
        if !(engine.near && same) {
            return Here::default();
        }
        let names =
            NAMES.iter().find_map(|path| Some(servers(&read_to_string(path).ok()?)).filter(|all| !all.is_empty()));
        Here { addresses: read_to_string("/proc/net/fib_trie").ok().map(|trie| public(&trie)), names }
    }
}

/// The name servers in a resolv.conf(5) that can be asked from a network of its own.
fn servers(text: &str) -> Vec<Ipv4Addr> {
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let found = lines.filter_map(|rest| rest.split_whitespace().next()?.parse::<Ipv4Addr>().ok());
    found.filter(|address| !address.is_loopback() && !address.is_unspecified()).take(MOST).collect()
}

/// The addresses of this machine in the kernel's own table of routes that would not be refused anyway:
/// `|-- 192.0.2.1` before `/32 host LOCAL`.
fn public(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf = None;
    for line in trie.lines().map(str::trim) {
        match line.strip_prefix("|-- ") {
            Some(address) => leaf = address.parse::<Ipv4Addr>().ok(),
            None if line.starts_with("/32 ") && line.ends_with("LOCAL") => found.extend(leaf),
            None => {}
        }
    }
    found.retain(|address| class(IpAddr::V4(*address)).is_none());
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_those_that_others_can_ask() {
        let of =
            |text: &str| servers(text).into_iter().map(|address| address.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(
            of("# a\nsearch x\nnameserver 10.0.0.53\n nameserver\t9.9.9.9 # b\nnameserver fd00::53\n"),
            "10.0.0.53 9.9.9.9"
        );
        assert_eq!(of("nameserver 127.0.0.53\noptions edns0"), "");
        assert_eq!(
            of("nameserver 1.1.1.1\nnameserver 1.1.1.2\nnameserver 1.1.1.3\nnameserver 1.1.1.4"),
            "1.1.1.1 1.1.1.2 1.1.1.3"
        );
    }

    #[test]
    fn own_addresses_are_found_in_the_kernels_table() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 8.8.4.4\n        \
                    /32 host LOCAL\n     |-- 8.8.4.0\n        /24 link UNICAST\nLocal:\n     |-- 8.8.4.4\n        /32 host LOCAL\n     \
                    |-- 10.0.0.1\n        /32 host LOCAL\n     |-- 8.8.4.255\n        /32 link BROADCAST\n";
        assert_eq!(public(trie), [Ipv4Addr::new(8, 8, 4, 4)]);
    }

    #[test]
    fn another_machines_engine_tells_nothing_of_this_one() {
        assert_eq!(Here::look(&Defaults::default()), Here::default());
        let elsewhere =
            Defaults { host: "elsewhere".into(), kernel: "6.1.0".into(), near: true, ..Defaults::default() };
        assert_eq!(Here::look(&elsewhere), Here::default());
    }
}
