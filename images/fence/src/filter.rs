//! The packet filter on what leaves: the same as the routes, for sockets that ask none. Knows nothing of routes.
//!
//! A socket may be bound to an interface by anybody, and the kernel then takes what has no route for a neighbour; a
//! broadcast needs no route at all.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use rustix::net::netlink::NETFILTER;

use crate::netlink::{APPEND, Attributes, CREATE, Message, Netlink};
use crate::subnet::Subnet;
use crate::{Plan, named};

/// Protocols over IP.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// The port of name servers.
const PORT: u16 = 53;
/// The loopback has this number in every namespace.
const LOOPBACK: u32 = 1;

/// Families.
const FOUR: u8 = 2;
const SIX: u8 = 10;

/// What the table and its chain are called, and the chain for what passes through.
const NAME: &str = "fence";
const PASSING: &str = "passing";

/// Kinds of messages (linux/netfilter/nf_tables.h).
const BEGIN: u16 = 16;
const END: u16 = 17;
const SUBSYSTEM: u16 = 10;
const NEW_TABLE: u16 = SUBSYSTEM << 8;
const NEW_CHAIN: u16 = SUBSYSTEM << 8 | 3;
const NEW_RULE: u16 = SUBSYSTEM << 8 | 6;

/// What passes through, what leaves, and what becomes of it.
const FORWARD: u32 = 2;
const OUTPUT: u32 = 3;
const DROP: u32 = 0;
const ACCEPT: u32 = 1;

/// Registers: for the verdict, and for what is compared.
const VERDICT: u32 = 0;
const REGISTER: u32 = 1;

/// What of a packet is looked at.
const OUT_DEVICE: u32 = 5;
const PROTOCOL: u32 = 16;
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

/// A rule in the making.
#[derive(Default)]
struct Rule(Attributes);

impl Rule {
    fn add(self, name: &str, data: Attributes) -> Self {
        let expression = Attributes::default().text(1, name).nest(2, data);
        Rule(self.0.nest(1, expression))
    }

    fn meta(self, key: u32) -> Self {
        self.add("meta", Attributes::default().big(1, REGISTER).big(2, key))
    }

    fn bytes(self, base: u32, offset: u32, length: u32) -> Self {
        self.add("payload", Attributes::default().big(1, REGISTER).big(2, base).big(3, offset).big(4, length))
    }

    fn masked(self, mask: u32) -> Self {
        let value = |bytes: [u8; 4]| Attributes::default().with(1, &bytes);
        let data = Attributes::default().big(1, REGISTER).big(2, REGISTER).big(3, 4);
        self.add("bitwise", data.nest(4, value(mask.to_be_bytes())).nest(5, value([0; 4])))
    }

    fn is(self, value: &[u8]) -> Self {
        let data = Attributes::default().with(1, value);
        self.add("cmp", Attributes::default().big(1, REGISTER).big(2, 0).nest(3, data))
    }

    fn to(self, subnet: Subnet) -> Self {
        self.bytes(NETWORK, 16, 4).masked(subnet.mask()).is(&subnet.address.octets())
    }

    fn then(self, verdict: u32, family: u8) -> Message {
        let verdict = Attributes::default().nest(2, Attributes::default().big(1, verdict));
        let rule = self.add("immediate", Attributes::default().big(1, VERDICT).nest(2, verdict));
        let attributes = Attributes::default().text(1, NAME).text(2, NAME).nest(4, rule.0);
        Message::new(NEW_RULE, CREATE | APPEND, &header(family), attributes)
    }
}

/// Sets it, whole or not at all.
pub(crate) fn set(plan: &Plan) -> io::Result<()> {
    let mut kernel = Netlink::open(Some(NETFILTER)).map_err(|error| named("cannot filter packets", error))?;
    kernel.all(&batch(FOUR, four(plan))).map_err(|error| named("cannot filter packets", error))?;
    // A kernel without the second family has nothing to be filtered there.
    if Path::new("/proc/net/if_inet6").exists() {
        kernel.all(&batch(SIX, Vec::new())).map_err(|error| named("cannot filter packets of IPv6", error))?;
    }
    Ok(())
}

/// The rules in their order: the narrowest network first, for the first that fits counts.
fn four(plan: &Plan) -> Vec<Message> {
    let names = plan.names.iter().map(|subnet| (*subnet, true));
    let mut all: Vec<(Subnet, bool)> = names.chain(plan.refused.iter().map(|subnet| (*subnet, false))).collect();
    all.sort_by_key(|(subnet, _)| std::cmp::Reverse(subnet.length));
    // What is a loopback's goes out by no other way: a host may be set to take it in.
    let loopback = Subnet { address: Ipv4Addr::new(127, 0, 0, 0), length: 8 };
    let mut rules = vec![Rule::default().to(loopback).then(DROP, FOUR)];
    for (subnet, names) in all {
        match names {
            true => rules.extend([UDP, TCP].map(|protocol| {
                let rule = Rule::default().to(subnet).meta(PROTOCOL).is(&[protocol]);
                rule.bytes(TRANSPORT, 2, 2).is(&PORT.to_be_bytes()).then(ACCEPT, FOUR)
            })),
            false => rules.push(Rule::default().to(subnet).then(DROP, FOUR)),
        }
    }
    rules.push(Rule::default().then(ACCEPT, FOUR));
    rules
}

/// A table with a chain that lets through what stays here and then does as the rules say; what they say nothing of goes
/// nowhere, nor does what only passes through.
fn batch(family: u8, rules: Vec<Message>) -> Vec<Message> {
    let table = Message::new(NEW_TABLE, CREATE, &header(family), Attributes::default().text(1, NAME));
    let chain = |name: &str, hook: u32| {
        let hook = Attributes::default().big(1, hook).big(2, 0);
        let chain = Attributes::default().text(1, NAME).text(3, name).nest(4, hook).big(5, DROP).text(7, "filter");
        Message::new(NEW_CHAIN, CREATE, &header(family), chain)
    };
    let here = Rule::default().meta(OUT_DEVICE).is(&LOOPBACK.to_ne_bytes()).then(ACCEPT, family);
    let begin = Message::silent(BEGIN, &edge());
    let end = Message::silent(END, &edge());
    [begin, table, chain(PASSING, FORWARD), chain(NAME, OUTPUT), here].into_iter().chain(rules).chain([end]).collect()
}

fn header(family: u8) -> [u8; 4] {
    [family, 0, 0, 0]
}

/// The header of the beginning and the end, which name the part of the kernel.
fn edge() -> [u8; 4] {
    let [high, low] = SUBSYSTEM.to_be_bytes();
    [0, 0, high, low]
}
