//! The controls on what network a server has, and what bounds that. Pure.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::super::fence::Bounds;
use super::super::lan::{DRIVER, OPTIONS};
use super::super::report::RouteLine;
use super::super::spec::Way;
use super::Control;
use super::view::{View, as_asked, control, or_unread};

/// Tunnels that some kernels put into every network of their own, down and without a route.
const IDLE: [&str; 9] = ["tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"];

/// Flags of a route (linux/route.h): up, by a gateway, to one host, and refused.
const UP: u16 = 0x1;
const GATEWAY: u16 = 0x2;
const HOST: u16 = 0x4;
const REJECT: u16 = 0x200;

pub(super) fn network(v: &View<'_>) -> Control {
    let mode = v.host.network_mode.clone().unwrap_or_default();
    let published =
        v.host.port_bindings.as_ref().is_some_and(|p| !p.is_empty()) || v.host.publish_all_ports == Some(true);
    let others = others(v);
    let as_asked = mode == v.asked.network_mode() && !published && others.is_empty() && names_as_asked(v);
    let asked = words(&v.asked.way).unwrap_or_else(|| "none".to_owned());
    let told = if mode == v.asked.network_mode() { asked.clone() } else { mode };
    let more = others.into_iter().map(|name| format!(", joined {name}"));
    let more = more.chain(published.then(|| ", ports published".to_owned()));
    let more = more.chain((!names_as_asked(v)).then(|| ", other name servers".to_owned()));
    let engine = more.fold(told, |all, more| all + &more);
    let (inside, holds) = match v.asked.bounds() {
        Some(_) => fenced_inside(v),
        // Also behind a guard: the way out is through its ports, and not one of the network's.
        None => alone_inside(v),
    };
    let there = in_the_others(v);
    let inside = inside + if there { "" } else { ", of another network namespace" };
    control("network", &asked, engine, inside, as_asked && holds && there)
}

/// What it has instead of none.
fn words(way: &Way) -> Option<String> {
    match way {
        Way::Alone | Way::Guarding(_) => None,
        Way::Behind(guard) => Some(format!("none but through the guard {:.12}", guard.container())),
        Way::Within(fence) => Some(format!("none but within the fence {:.12}", fence.container())),
        Way::Fencing(_, bounds) => Some(format!("{} alone", bounds.place.name)),
    }
}

/// The networks that it has joined, and should not have, and the one that it should have, and has not.
fn others(v: &View<'_>) -> Vec<String> {
    let joined = v.engine.network_settings.as_ref().and_then(|settings| settings.networks.as_ref());
    let mut others: Vec<String> = Vec::new();
    let mut own = false;
    for (name, endpoint) in joined.into_iter().flatten() {
        match &v.asked.way {
            Way::Fencing(_, bounds) if *name == bounds.place.name => {
                let same = endpoint.network_id.as_deref() == Some(&bounds.place.id);
                own = same && endpoint.gateway.as_deref() == Some(&bounds.place.gateway.to_string());
            }
            _ if name == "none" => {}
            _ => others.push(name.clone()),
        }
    }
    if v.asked.is_fence() && !own {
        others.push("not its own".to_owned());
    }
    others.sort_unstable();
    others
}

fn names_as_asked(v: &View<'_>) -> bool {
    let searched = || v.host.dns_search.as_deref().is_some_and(|all| all == ["."]);
    let asked = || v.asked.name_servers().unwrap_or_default();
    !v.asked.is_fence() || searched() && v.host.dns.clone().unwrap_or_default() == asked()
}

/// Nothing but loopback, and no route.
fn alone_inside(v: &View<'_>) -> (String, bool) {
    let (interfaces, routes) = (v.inside.interfaces(), v.inside.routes());
    let is_none = |name: &&str| *name == "lo" || IDLE.contains(name) && v.inside.is_idle(name);
    let only_lo = interfaces.as_ref().is_some_and(|all| all.contains(&"lo") && all.iter().all(is_none));
    let no_way = routes.as_ref().is_some_and(Vec::is_empty);
    let inside = match (&interfaces, &routes) {
        (Some(all), Some(routes)) => format!("{}, {} routes out", all.join(","), routes.len()),
        _ => or_unread(None),
    };
    (inside, only_lo && no_way)
}

/// Whether it is in the network of the very guard or fence, where it is to have that one's.
fn in_the_others(v: &View<'_>) -> bool {
    let own = v.inside.namespaces.get("net").and_then(Option::as_deref);
    v.asked.namespace_of_network().is_none_or(|others| own == Some(others))
}

/// One interface beside loopback.
fn fenced_inside(v: &View<'_>) -> (String, bool) {
    let Some(interfaces) = v.inside.interfaces() else { return (or_unread(None), false) };
    let one = interfaces.contains(&"lo") && interface(v).is_some();
    (interfaces.join(","), one)
}

/// The only interface that leads out.
fn interface<'a>(v: &'a View<'_>) -> Option<&'a str> {
    let all = v.inside.interfaces()?;
    let mut out = all.into_iter().filter(|name| *name != "lo" && !(IDLE.contains(name) && v.inside.is_idle(name)));
    out.next().filter(|_| out.next().is_none())
}

/// What bounds a network that leads out: the engine's part of it, and what the kernel refuses inside.
pub(super) fn fence(v: &View<'_>, bounds: &Bounds) -> Control {
    let engine = unlike(v, bounds);
    let (routes, attempts) = (misrouted(v, bounds), unrefused(v, bounds));
    let inside: Vec<String> = routes.into_iter().chain(attempts).collect();
    let holds = engine.is_empty() && inside.is_empty();
    let seen = match inside.is_empty() {
        true => format!(
            "1 route out, {} networks prohibited, {} attempts refused",
            bounds.refused().len(),
            bounds.attempts().len()
        ),
        false => inside.join(", "),
    };
    control("fence", "public addresses alone", as_asked(engine.is_empty(), || engine.join(", ")), seen, holds)
}

/// What of the engine's network is not as it was asked for.
fn unlike(v: &View<'_>, bounds: &Bounds) -> Vec<String> {
    let Some(network) = v.network else { return vec!["its network is not told".to_owned()] };
    let fence = v.asked.host_of_network().map(|(container, _)| container).or(v.engine.id.as_deref());
    let holds = |flag: Option<bool>, wanted: bool| flag.unwrap_or(false) == wanted;
    let options: HashMap<&str, &str> =
        network.options.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let place = &bounds.place;
    let addresses = network.ipam.as_ref().and_then(|ipam| ipam.config.as_deref()).unwrap_or_default();
    let subnets: Vec<&str> = addresses.iter().filter_map(|config| config.subnet.as_deref()).collect();
    let joined: Vec<&str> = network.containers.iter().flatten().map(|(id, _)| id.as_str()).collect();
    let labels = network.labels.clone().unwrap_or_default();
    let labelled = place.labels.iter().all(|(key, value)| labels.get(key) == Some(value));
    let from = network.config_from.as_ref().and_then(|from| from.network.as_deref()).unwrap_or_default();
    [
        ("another network", network.id.as_deref() == Some(&place.id) && network.name.as_deref() == Some(&place.name)),
        ("another driver", network.driver.as_deref() == Some(DRIVER)),
        ("other options", options == HashMap::from(OPTIONS)),
        ("internal", holds(network.internal, false)),
        ("attachable", holds(network.attachable, false) && holds(network.ingress, false)),
        ("IPv6", holds(network.enable_ipv6, false)),
        (
            "other addresses",
            subnets == [place.subnet.to_string()] && holds(network.config_only, false) && from.is_empty(),
        ),
        ("other labels", labelled),
        ("other containers in it", fence.is_some() && joined.first().copied() == fence && joined.len() == 1),
    ]
    .into_iter()
    .filter(|(_, holds)| !holds)
    .map(|(what, _)| what.to_owned())
    .collect()
}

/// Routes that are missing, and those that are too many.
fn misrouted(v: &View<'_>, bounds: &Bounds) -> Vec<String> {
    let Some(seen) = v.inside.route_lines() else { return vec!["routes cannot be read".to_owned()] };
    let way_out = |interface: &str| RouteLine {
        interface: interface.to_owned(),
        to: Ipv4Addr::UNSPECIFIED,
        mask: Ipv4Addr::UNSPECIFIED,
        gateway: bounds.place.gateway,
        flags: UP | GATEWAY,
    };
    let refused = bounds.refused().into_iter().map(|subnet| RouteLine {
        interface: "*".to_owned(),
        to: subnet.address(),
        mask: subnet.mask(),
        gateway: Ipv4Addr::UNSPECIFIED,
        flags: UP | REJECT | if subnet.length() == 32 { HOST } else { 0 },
    });
    let wanted: Vec<RouteLine> = refused.chain(interface(v).map(way_out)).collect();
    let shown = |what: &str, line: &RouteLine| format!("{what} {}/{}", line.to, line.mask.to_bits().count_ones());
    let missing = wanted.iter().filter(|line| !seen.contains(line)).map(|line| shown("no route as asked to", line));
    let more = seen.iter().filter(|line| !wanted.contains(line)).map(|line| shown("a route to", line));
    let twice = seen.len() > wanted.len() && seen.iter().all(|line| wanted.contains(line));
    let six = v.inside.routes_of_six().into_iter().map(|_| "a route of IPv6".to_owned());
    missing.chain(more).chain(twice.then(|| "routes twice".to_owned())).chain(six).collect()
}

/// What was tried inside and did not fail as it is to.
fn unrefused(v: &View<'_>, bounds: &Bounds) -> Vec<String> {
    let Some(tried) = &v.inside.attempts else { return vec!["nothing was tried".to_owned()] };
    let wrong = bounds.attempts().into_iter().filter_map(|attempt| {
        let text = attempt.text();
        match tried.get(&text).copied().flatten() {
            Some(error) if error == attempt.error() => None,
            Some(0) => Some(format!("{text} is open")),
            Some(error) => Some(format!("{text} ends with error {error}")),
            None => Some(format!("{text} was not tried")),
        }
    });
    wrong.collect()
}
