//! Which addresses a name may lead to: public ones alone. Pure.
//!
//! A name that is allowed says nothing of the addresses that its owner gives it. What is not out on the internet is
//! reached only by a rule that names it (see [`super::rule`]), and the host's loopback by a port that is granted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::subnet::Subnet;

/// What an address is for, where that is not the public internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// This very host.
    Loopback,
    /// No address at all.
    Unspecified,
    /// A private network.
    Private,
    /// The network between a provider and its customers.
    Shared,
    /// The own link.
    LinkLocal,
    /// Where a cloud tells its machines their credentials.
    Metadata,
    /// Many at once.
    Multicast,
    /// Documentation.
    Documentation,
    /// Measuring networks.
    Benchmarking,
    /// One address within another: what is reached depends on who translates it.
    Translated,
    /// Protocols of their own, or nothing yet.
    Reserved,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Loopback => "a loopback address",
            Class::Unspecified => "the unspecified address",
            Class::Private => "a private address",
            Class::Shared => "a shared (carrier-grade NAT) address",
            Class::LinkLocal => "a link-local address",
            Class::Metadata => "a cloud metadata address",
            Class::Multicast => "a multicast address",
            Class::Documentation => "a documentation address",
            Class::Benchmarking => "a benchmarking address",
            Class::Translated => "an address within another",
            Class::Reserved => "a reserved address",
        })
    }
}

/// Networks of IPv4 that are not public: the registry of special addresses (RFC 6890), and what clouds use beside it. The
/// first one that fits counts.
const FOUR: [([u8; 4], u32, Class); 20] = [
    ([169, 254, 169, 254], 32, Class::Metadata),   // most clouds
    ([169, 254, 170, 2], 32, Class::Metadata),     // credentials of AWS tasks
    ([168, 63, 129, 16], 32, Class::Metadata),     // Azure; publicly numbered, and the host's all the same
    ([100, 100, 100, 200], 32, Class::Metadata),   // Alibaba
    ([192, 0, 0, 192], 32, Class::Metadata),       // Oracle
    ([0, 0, 0, 0], 8, Class::Unspecified),         // RFC 791; Linux takes 0.0.0.0 for itself
    ([10, 0, 0, 0], 8, Class::Private),            // RFC 1918
    ([100, 64, 0, 0], 10, Class::Shared),          // RFC 6598
    ([127, 0, 0, 0], 8, Class::Loopback),          // RFC 1122
    ([169, 254, 0, 0], 16, Class::LinkLocal),      // RFC 3927
    ([172, 16, 0, 0], 12, Class::Private),         // RFC 1918
    ([192, 0, 0, 0], 24, Class::Reserved),         // RFC 6890
    ([192, 0, 2, 0], 24, Class::Documentation),    // RFC 5737
    ([192, 88, 99, 0], 24, Class::Translated),     // RFC 7526
    ([192, 168, 0, 0], 16, Class::Private),        // RFC 1918
    ([198, 18, 0, 0], 15, Class::Benchmarking),    // RFC 2544
    ([198, 51, 100, 0], 24, Class::Documentation), // RFC 5737
    ([203, 0, 113, 0], 24, Class::Documentation),  // RFC 5737
    ([224, 0, 0, 0], 4, Class::Multicast),         // RFC 5771
    ([240, 0, 0, 0], 4, Class::Reserved),          // RFC 1112, broadcast (RFC 919) included
];

/// The same for IPv6. What fits nothing here is public only within 2000::/3 (RFC 4291).
const SIX: [([u16; 8], u32, Class); 19] = [
    ([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, Class::Metadata), // AWS
    ([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128, Class::Metadata),  // Google
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Class::Unspecified),           // RFC 4291
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Class::Loopback),              // RFC 4291
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, Class::Translated),             // RFC 4291, IPv4-compatible
    ([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, Class::Translated),        // RFC 4291, IPv4-mapped
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, Class::Translated),        // RFC 2765
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Class::Translated),     // RFC 8215
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 8, Class::Reserved),            // RFC 6666, RFC 9780
    ([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Class::Benchmarking),      // RFC 5180
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Class::Translated),        // RFC 4380, Teredo
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Class::Reserved),          // RFC 2928
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Class::Documentation), // RFC 3849
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Class::Translated),        // RFC 7526, 6to4
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Class::Documentation),     // RFC 9637
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Class::Private),            // RFC 4193
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Class::LinkLocal),         // RFC 4291
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Class::Private),           // RFC 3879
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Class::Multicast),          // RFC 4291
];

/// Where a network without IPv4 puts the addresses of IPv4 (RFC 6052). It is the one form of an address within another
/// that names really resolve to, so that what is within it counts.
const NAT64: [u16; 8] = [0x64, 0xff9b, 0, 0, 0, 0, 0, 0];

/// What an address is for; `None` for a public one.
pub fn class(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(four) => class_of_four(four),
        IpAddr::V6(six) => class_of_six(six),
    }
}

/// The networks of IPv4 that are not public, none of them within another; but for the loopback, which is everybody's own.
pub fn not_public() -> Vec<(Subnet, Class)> {
    let all = FOUR.iter().map(|(address, length, class)| (Subnet::of(Ipv4Addr::from(*address), *length as u8), *class));
    let all: Vec<(Subnet, Class)> = all.filter(|(_, class)| *class != Class::Loopback).collect();
    let wider = |subnet: Subnet| all.iter().any(|(other, _)| *other != subnet && other.holds(subnet));
    all.iter().filter(|(subnet, _)| !wider(*subnet)).copied().collect()
}

fn class_of_four(address: Ipv4Addr) -> Option<Class> {
    let within =
        |network: [u8; 4], length: u32| (Ipv4Addr::from(network).to_bits() ^ address.to_bits()) >> (32 - length) == 0;
    FOUR.iter().find(|(network, length, _)| within(*network, *length)).map(|(.., class)| *class)
}

fn class_of_six(address: Ipv6Addr) -> Option<Class> {
    let bits = address.to_bits();
    let within = |network: [u16; 8], length: u32| (Ipv6Addr::from(network).to_bits() ^ bits) >> (128 - length) == 0;
    if within(NAT64, 96) {
        return class_of_four(Ipv4Addr::from_bits(bits as u32));
    }
    let special = SIX.iter().find(|(network, length, _)| within(*network, *length)).map(|(.., class)| *class);
    special.or_else(|| (bits >> 125 != 1).then_some(Class::Reserved))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &str) -> Option<Class> {
        class(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_public() {
        let public = [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "140.82.121.4",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "64:ff9b::8.8.8.8",
            "3ffe::1",
        ];
        for text in public {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn every_other_is_known_for_what_it_is() {
        let special = [
            ("0.0.0.0", Class::Unspecified),
            ("0.1.2.3", Class::Unspecified),
            ("10.255.255.255", Class::Private),
            ("100.64.0.0", Class::Shared),
            ("100.127.255.255", Class::Shared),
            ("127.0.0.1", Class::Loopback),
            ("127.255.255.255", Class::Loopback),
            ("169.254.0.1", Class::LinkLocal),
            ("169.254.169.254", Class::Metadata),
            ("168.63.129.16", Class::Metadata),
            ("100.100.100.200", Class::Metadata),
            ("172.16.0.0", Class::Private),
            ("172.31.255.255", Class::Private),
            ("192.0.0.8", Class::Reserved),
            ("192.0.2.1", Class::Documentation),
            ("192.88.99.1", Class::Translated),
            ("192.168.255.255", Class::Private),
            ("198.18.0.1", Class::Benchmarking),
            ("198.19.255.255", Class::Benchmarking),
            ("198.51.100.1", Class::Documentation),
            ("203.0.113.255", Class::Documentation),
            ("224.0.0.1", Class::Multicast),
            ("239.255.255.255", Class::Multicast),
            ("240.0.0.1", Class::Reserved),
            ("255.255.255.255", Class::Reserved),
            ("::", Class::Unspecified),
            ("::1", Class::Loopback),
            ("::127.0.0.1", Class::Translated),
            ("::ffff:8.8.8.8", Class::Translated),
            ("::ffff:0:127.0.0.1", Class::Translated),
            ("64:ff9b::127.0.0.1", Class::Loopback),
            ("64:ff9b::169.254.169.254", Class::Metadata),
            ("64:ff9b::10.0.0.1", Class::Private),
            ("64:ff9b:1::8.8.8.8", Class::Translated),
            ("100::1", Class::Reserved),
            ("2001::1", Class::Translated),
            ("2001:2::1", Class::Benchmarking),
            ("2001:20::1", Class::Reserved),
            ("2001:db8::1", Class::Documentation),
            ("2002:7f00:1::", Class::Translated),
            ("3fff::1", Class::Documentation),
            ("fc00::1", Class::Private),
            ("fd00:ec2::254", Class::Metadata),
            ("fdff::1", Class::Private),
            ("fe80::1", Class::LinkLocal),
            ("fec0::1", Class::Private),
            ("ff02::1", Class::Multicast),
            ("4000::1", Class::Reserved),
            ("1fff::1", Class::Reserved),
            ("64:ff9c::1", Class::Reserved),
            ("5f00::1", Class::Reserved),
        ];
        for (text, class) in special {
            assert_eq!(of(text), Some(class), "{text}");
        }
    }

    #[test]
    fn the_networks_that_are_not_public_are_told_once() {
        let all: Vec<String> = not_public().into_iter().map(|(subnet, _)| subnet.to_string()).collect();
        assert_eq!(all.len(), 15, "{all:?}");
        assert!(all.contains(&"169.254.0.0/16".to_owned()) && all.contains(&"168.63.129.16/32".to_owned()), "{all:?}");
        assert!(!all.contains(&"169.254.169.254/32".to_owned()) && !all.contains(&"127.0.0.0/8".to_owned()), "{all:?}");
    }

    proptest! {
        #[test]
        fn a_network_that_is_not_public_holds_what_is_not(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let held = not_public().iter().any(|(subnet, _)| subnet.holds(Subnet::host(address)));
            prop_assert_eq!(held || address.is_loopback(), class(address.into()).is_some(), "{}", address);
        }

        #[test]
        fn the_standard_library_finds_nothing_public_that_is_not(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local() || address.is_multicast()
                || address.is_broadcast() || address.is_documentation() || address.is_unspecified();
            prop_assert!(!special || class(address.into()).is_some(), "{}", address);
        }

        #[test]
        fn no_form_of_an_address_is_more_public_than_itself(bits: u32) {
            let four = Ipv4Addr::from_bits(bits);
            let own = class(four.into());
            prop_assert!(class(four.to_ipv6_mapped().into()).is_some());
            prop_assert!(class(Ipv6Addr::from_bits(u128::from(bits)).into()).is_some());
            prop_assert!(class(Ipv6Addr::from_bits(0x2002 << 112 | u128::from(bits) << 80).into()).is_some());
            let nat64 = Ipv6Addr::from(NAT64).to_bits() | u128::from(bits);
            prop_assert_eq!(class(Ipv6Addr::from_bits(nat64).into()), own);
        }

        #[test]
        fn outside_of_global_unicast_only_translated_addresses_are_public(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            let global = bits >> 125 == 1 || address.segments()[..6] == NAT64[..6];
            prop_assert!(global || class(address.into()).is_some(), "{}", address);
        }
    }
}
