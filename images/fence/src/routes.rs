//! The routes: out by the gateway, to nothing beside it. Knows nothing of packets.

use std::io;
use std::net::Ipv4Addr;

use crate::filter::{TCP, UDP};
use crate::netlink::{Attributes, CREATE, Message, Netlink, REPLACE, attributes, u32_at};
use crate::subnet::Subnet;
use crate::{Plan, named};

/// Kinds of messages (rtnetlink(7)).
const NEW_ROUTE: u16 = 24;
const DELETE_ROUTE: u16 = 25;
const GET_ROUTE: u16 = 26;
const NEW_RULE: u16 = 32;

/// Families.
const FOUR: u8 = 2;
const SIX: u8 = 10;

/// What a route does with a packet.
const UNICAST: u8 = 1;
const LOCAL: u8 = 2;
const PROHIBIT: u8 = 8;

/// Tables: the usual one, and the one for questions about names.
const MAIN: u8 = 254;
const NAMES: u8 = 53;
/// Where its rule stands: after that for what is local (0), before the usual one (32766).
const PRIORITY: u32 = 100;
/// The port of name servers.
const PORT: u16 = 53;

/// Who made a route or a rule: an administrator.
const STATIC: u8 = 4;
/// The gateway is there, although no route says so.
const ONLINK: u32 = 4;
/// A rule that names a table.
const TO_TABLE: u8 = 1;
/// The loopback has this number in every namespace.
const LOOPBACK: u32 = 1;

/// Attributes of routes and of rules.
mod attribute {
    pub(super) const DESTINATION: u16 = 1;
    pub(super) const DEVICE: u16 = 4;
    pub(super) const GATEWAY: u16 = 5;
    pub(super) const RULE_PRIORITY: u16 = 6;
    pub(super) const RULE_PROTOCOL: u16 = 22;
    pub(super) const RULE_PORTS: u16 = 24;
}

/// A route that is there.
struct Route {
    body: Vec<u8>,
    device: u32,
    gateway: Option<Ipv4Addr>,
}

impl Route {
    fn read(body: Vec<u8>) -> Option<Self> {
        let found = attributes(body.get(12..)?);
        let value = |kind: u16| found.iter().find(|(other, _)| *other == kind).map(|(_, value)| *value);
        let device = value(attribute::DEVICE).and_then(|value| u32_at(value, 0)).unwrap_or(LOOPBACK);
        let gateway = value(attribute::GATEWAY).and_then(|value| <[u8; 4]>::try_from(value).ok()).map(Ipv4Addr::from);
        Some(Route { device, gateway, body })
    }

    fn is_default(&self) -> bool {
        self.body[0] == FOUR && self.body[1] == 0 && self.body[4] == MAIN && self.body[7] == UNICAST
    }

    /// To an address of the container's own.
    fn is_own(&self) -> bool {
        self.body[0] == FOUR && self.body[7] == LOCAL
    }
}

/// The routes as they are.
pub(crate) struct Routes {
    kernel: Netlink,
    found: Vec<Route>,
    device: u32,
}

impl Routes {
    /// Looks for the way out, and changes nothing. There must be no other.
    pub(crate) fn look(plan: &Plan) -> io::Result<Self> {
        let mut kernel = Netlink::open(None).map_err(|error| named("cannot speak of routes", error))?;
        let found = all(&mut kernel, FOUR)?;
        let out = found.iter().find(|route| route.is_default() && route.gateway == Some(plan.gateway));
        let Some(device) = out.map(|route| route.device) else {
            return Err(io::Error::other(format!("there is no way out by {}", plan.gateway)));
        };
        if found.iter().any(|route| ![LOOPBACK, device].contains(&route.device)) {
            return Err(io::Error::other("there is more than one network"));
        }
        Ok(Routes { kernel, found, device })
    }

    /// Puts others in place of all that lead anywhere.
    pub(crate) fn set(mut self, plan: &Plan) -> io::Result<()> {
        for table in [MAIN, NAMES] {
            self.ask(&by(plan.gateway, self.device, table, None), "cannot route by the gateway")?;
            let refused = plan.refused.iter().filter(|refused| table == MAIN || !plan.names.contains(refused));
            for refused in refused {
                self.ask(
                    &prohibit(*refused, table),
                    &format!("cannot prohibit {}/{}", refused.address, refused.length),
                )?;
            }
        }
        for names in &plan.names {
            self.ask(&by(plan.gateway, self.device, NAMES, Some(*names)), "cannot route to name servers")?;
        }
        if !plan.names.is_empty() {
            for protocol in [UDP, TCP] {
                self.ask(&rule(protocol), "cannot route by ports")?;
            }
        }
        let six = all(&mut self.kernel, SIX).unwrap_or_default();
        for route in others(std::mem::take(&mut self.found)).chain(others(six)) {
            // One may go with another.
            let _ = self.kernel.ask(&Message::of(DELETE_ROUTE, &route.body));
        }
        let six = all(&mut self.kernel, SIX).unwrap_or_default();
        match others(all(&mut self.kernel, FOUR)?).chain(others(six)).count() {
            0 => Ok(()),
            left => Err(io::Error::other(format!("{left} routes cannot be removed"))),
        }
    }

    fn ask(&mut self, message: &Message, what: &str) -> io::Result<()> {
        self.kernel.ask(message).map_err(|error| named(what, error))
    }
}

fn all(kernel: &mut Netlink, family: u8) -> io::Result<Vec<Route>> {
    let found = kernel.dump(Message::dump(GET_ROUTE, &header(family, 0, 0, 0, 0)));
    Ok(found.map_err(|error| named("cannot read routes", error))?.into_iter().filter_map(Route::read).collect())
}

/// Those that lead out, but for the one by the gateway, which was set.
fn others(all: Vec<Route>) -> impl Iterator<Item = Route> {
    let set =
        |route: &Route| route.body[0] == FOUR && route.gateway.is_some() && [MAIN, NAMES].contains(&route.body[4]);
    all.into_iter().filter(move |route| route.device != LOOPBACK && !route.is_own() && !set(route))
}

fn header(family: u8, length: u8, table: u8, kind: u8, flags: u32) -> [u8; 12] {
    let [a, b, c, d] = flags.to_ne_bytes();
    [family, length, 0, 0, table, STATIC, 0, kind, a, b, c, d]
}

/// By the gateway, which only the link leads to: it can be refused like any other address.
fn by(gateway: Ipv4Addr, device: u32, table: u8, to: Option<Subnet>) -> Message {
    let length = to.map_or(0, |to| to.length);
    let attributes = to.map_or_else(Attributes::default, |to| {
        Attributes::default().with(attribute::DESTINATION, &to.address.octets())
    });
    let attributes = attributes.with(attribute::GATEWAY, &gateway.octets()).number(attribute::DEVICE, device);
    Message::new(NEW_ROUTE, CREATE | REPLACE, &header(FOUR, length, table, UNICAST, ONLINK), attributes)
}

fn prohibit(what: Subnet, table: u8) -> Message {
    let to = Attributes::default().with(attribute::DESTINATION, &what.address.octets());
    Message::new(NEW_ROUTE, CREATE | REPLACE, &header(FOUR, what.length, table, PROHIBIT, 0), to)
}

/// What goes to the port of name servers has a table of its own.
fn rule(protocol: u8) -> Message {
    let ports = [PORT.to_ne_bytes(), PORT.to_ne_bytes()].concat();
    let attributes = Attributes::default()
        .number(attribute::RULE_PRIORITY, PRIORITY)
        .with(attribute::RULE_PROTOCOL, &[protocol])
        .with(attribute::RULE_PORTS, &ports);
    Message::new(NEW_RULE, CREATE, &[FOUR, 0, 0, 0, NAMES, 0, 0, TO_TABLE, 0, 0, 0, 0], attributes)
}
