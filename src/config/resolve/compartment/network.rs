//! `network`, `egress` and `host_ports`: what a server may reach. Knows nothing of how it gets there.

use crate::config::Network;
use crate::config::fault::quoted;
use crate::config::reader::{Field, Reader};
use crate::egress::rule::{Rule, Rules};

/// More ports than anybody lists by hand; a guard opens two sockets for each.
const MOST_PORTS: usize = 64;

/// The words of `network`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Egress,
    Bridge,
}

/// Reads the three of them together.
pub(super) fn network(r: &mut Reader<'_>) -> Network {
    let (network, egress, host_ports) = (r.get("network"), r.get("egress"), r.get("host_ports"));
    let words = [("none", Word::None), ("egress", Word::Egress), ("bridge", Word::Bridge)];
    let word = network.as_ref().and_then(|field| field.choice(&words));
    if let (Some(Word::None), Some(egress)) = (word, &egress) {
        egress.fault("cannot stand beside network = \"none\": leave that out");
    }
    if let (Some(Word::Egress), Some(network), None, None) = (word, &network, &egress, &host_ports) {
        network.fault("= \"egress\" needs what may be reached: egress = [\"host:port\"] or host_ports = [port]");
    }
    if word == Some(Word::Bridge) {
        let why = "cannot stand beside network = \"bridge\", which reaches the internet by itself and never the host: \
                   choose one of the two";
        let beside = [&egress, &host_ports].into_iter().flatten();
        beside.for_each(|field| field.fault(why));
        return Network::Bridge;
    }
    let rules = egress.map(|field| items(&field, usize::MAX, |item| item.parse(rule))).unwrap_or_default();
    let port = |item: &Field<'_>| item.integer(1, 65535);
    let host_ports: Vec<u16> = host_ports.map(|field| items(&field, MOST_PORTS, port)).unwrap_or_default();
    match rules.is_empty() && host_ports.is_empty() {
        true => Network::None,
        false => Network::Guarded { rules: Rules::new(rules), host_ports },
    }
}

fn rule(text: &str) -> Result<Rule, String> {
    Rule::parse(text).map_err(|why| format!("{} is nothing that can be reached: {why}", quoted(text)))
}

/// A list with something in it and nothing twice.
fn items<T: PartialEq>(field: &Field<'_>, most: usize, read: impl Fn(&Field<'_>) -> Option<T>) -> Vec<T> {
    let all = field.list().unwrap_or_default();
    if field.is_empty_list() {
        field.fault("must not be empty");
    }
    if all.len() > most {
        field.fault(format!("must not have more than {most} entries"));
    }
    let mut found = Vec::new();
    for item in all {
        match read(&item) {
            Some(value) if found.contains(&value) => item.fault("stands there twice"),
            value => found.extend(value),
        }
    }
    found
}
