//! A host as it is written: a name, or an address in the one form that everybody reads alike. Knows no ports or rules.
//!
//! Resolvers read `0x7f.1`, `017700000001` and `2130706433` as addresses, and so do some libraries; others take them for
//! names. What two programs read differently is refused here, so that nothing is checked as one thing and used as another.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name, without a dot at its end (RFC 1035).
const LONGEST: usize = 253;
/// The longest part of one.
const LABEL: usize = 63;

/// A host that is what it looks like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name: lower case, ASCII (punycode where it was not), no dot at the end.
    Name(Box<str>),
    /// An address, never an IPv4 one within IPv6.
    Address(IpAddr),
}

/// Why something is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHost {
    /// There is nothing, or nothing between two dots.
    Empty,
    /// The name is longer than names may be, or a part of it.
    Long,
    /// A character that no name has.
    Character,
    /// A number that some programs read as an address.
    Number,
    /// An IPv6 address that is none, has a zone, or lacks its brackets.
    Six,
    /// An IPv4 address written as an IPv6 one.
    Mapped,
}

impl fmt::Display for BadHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadHost::Empty => "the host is empty, or a part of it between dots",
            BadHost::Long => "the host's name is too long",
            BadHost::Character => "the host has a character that no name has",
            BadHost::Number => "an IPv4 address must be four decimal numbers without leading zeros",
            BadHost::Six => "an IPv6 address must be in brackets, without a zone",
            BadHost::Mapped => "an IPv4 address within IPv6 must be written as an IPv4 address",
        })
    }
}

impl Host {
    /// A host in a configuration: names may be in any script.
    pub fn written(text: &str) -> Result<Self, BadHost> {
        if text.is_ascii() {
            return Host::told(text);
        }
        let ascii = idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::URL);
        Host::told(&ascii.map_err(|_| BadHost::Character)?)
    }

    /// A host in a request: ASCII, as it goes over the wire.
    pub fn told(text: &str) -> Result<Self, BadHost> {
        match text.strip_prefix('[') {
            Some(rest) => six(rest.strip_suffix(']').ok_or(BadHost::Six)?),
            None if text.contains([':', ']', '%']) => Err(BadHost::Six),
            None => name(text),
        }
    }

    /// The same for a protocol that has no brackets.
    pub fn bare(text: &str) -> Result<Self, BadHost> {
        if text.contains(':') { six(text) } else { Host::told(text) }
    }

    /// An address that came as one.
    pub fn address(address: IpAddr) -> Result<Self, BadHost> {
        match address {
            IpAddr::V6(six) if six.to_ipv4_mapped().is_some() => Err(BadHost::Mapped),
            address => Ok(Host::Address(address)),
        }
    }
}

/// As in an authority: IPv6 in brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Host::Address(address) => write!(f, "{address}"),
        }
    }
}

fn six(text: &str) -> Result<Host, BadHost> {
    let address: Ipv6Addr = text.parse().map_err(|_| BadHost::Six)?;
    Host::address(address.into())
}

fn name(text: &str) -> Result<Host, BadHost> {
    let short = text.strip_suffix('.').unwrap_or(text);
    if short.len() > LONGEST {
        return Err(BadHost::Long);
    }
    for label in short.split('.') {
        match label.len() {
            0 => return Err(BadHost::Empty),
            1..=LABEL => {}
            _ => return Err(BadHost::Long),
        }
        if !label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Err(BadHost::Character);
        }
    }
    if !ends_in_a_number(short) {
        return Ok(Host::Name(short.to_ascii_lowercase().into()));
    }
    // The parser of the standard library takes no other form than this one.
    let address: Ipv4Addr = text.parse().map_err(|_| BadHost::Number)?;
    Ok(Host::Address(address.into()))
}

/// Whether its last part is a number, which makes it an address to browsers and resolvers (WHATWG URL, 3.5).
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    hex.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit())) || last.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name_of(text: &str) -> String {
        match Host::written(text) {
            Ok(Host::Name(name)) => name.into(),
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn names_come_out_in_one_form() {
        for text in ["api.github.com", "API.GitHub.com", "api.github.com.", "API.GITHUB.COM."] {
            assert_eq!(name_of(text), "api.github.com");
        }
        assert_eq!(name_of("bücher.example"), "xn--bcher-kva.example");
        assert_eq!(name_of("BÜCHER.example"), "xn--bcher-kva.example");
        assert_eq!(name_of("ｇｉｔｈｕｂ。com"), "github.com");
        assert_eq!(name_of("_srv.a-b.example"), "_srv.a-b.example");
        // A letter that only looks like another is another name.
        assert_ne!(name_of("ɡithub.com"), "github.com");
    }

    #[test]
    fn addresses_have_one_form_and_what_only_some_read_as_one_is_refused() {
        assert_eq!(Host::told("8.8.8.8"), Ok(Host::Address("8.8.8.8".parse().unwrap())));
        let numbers = [
            "2130706433",
            "0x7f000001",
            "0X7F.0.0.1",
            "017700000001",
            "0177.0.0.1",
            "127.1",
            "127.0.1",
            "127.0.0.01",
            "127.0.0.1.",
            "256.1.1.1",
            "1.2.3.4.5",
            "a.1",
            "1.2.3.0x4",
            "example.0x",
            "0",
            "00.0.0.0",
        ];
        for text in numbers {
            assert_eq!(Host::told(text), Err(BadHost::Number), "{text}");
        }
        for text in ["１２７.0.0.01", "0x７f000001", "127。0。1"] {
            assert_eq!(Host::written(text), Err(BadHost::Number), "{text}");
        }
        assert_eq!(Host::told("[2606:4700::1111]"), Ok(Host::Address("2606:4700::1111".parse().unwrap())));
        for text in
            ["::1", "[::1", "::1]", "[::1%lo]", "[fe80::1%25eth0]", "[]", "[1.2.3.4]", "[::1]x", "[[::1]]", "a%2eb"]
        {
            assert_eq!(Host::told(text), Err(BadHost::Six), "{text}");
        }
        for text in ["[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:8.8.8.8]"] {
            assert_eq!(Host::told(text), Err(BadHost::Mapped), "{text}");
        }
        assert_eq!(Host::bare("::ffff:127.0.0.1"), Err(BadHost::Mapped));
        assert_eq!(Host::bare("2606::1"), Host::told("[2606::1]"));
    }

    #[test]
    fn what_no_name_has_is_refused() {
        for text in ["", ".", "..", "a..b", ".a", "a.."] {
            assert_eq!(Host::told(text), Err(BadHost::Empty), "{text:?}");
        }
        let characters = [
            "a b",
            " a",
            "a\r\nHost b",
            "a\nb",
            "a\0b",
            "a\tb",
            "user@a",
            "a@b",
            "a/b",
            "a\\b",
            "a?b",
            "a#b",
            "*.a",
            "a*",
            "a,b",
            "a;b",
            "a\u{7f}",
            "a'b",
            "a\"b",
            "<a>",
            "a|b",
            "a$b",
        ];
        for text in characters {
            assert_eq!(Host::told(text), Err(BadHost::Character), "{text:?}");
        }
        assert!(Host::told("a\r\nHost: b").is_err());
        // In a request, a name is in ASCII by then.
        assert_eq!(Host::told("bücher.example"), Err(BadHost::Character));
        for text in ["a\u{ff0f}b", "ａ＠b.example", "a\u{ad}\u{200b}/"] {
            assert!(Host::written(text).is_err(), "{text:?}");
        }
        assert_eq!(Host::told(&"a".repeat(64)), Err(BadHost::Long));
        assert_eq!(Host::told(&vec!["a".repeat(63); 5].join(".")), Err(BadHost::Long));
        assert!(Host::told(&"a.".repeat(126)).is_ok());
    }

    proptest! {
        #[test]
        fn a_host_says_itself_again(text in "\\PC{0,40}") {
            if let Ok(host) = Host::written(&text) {
                let said = host.to_string();
                prop_assert!(said.is_ascii() && said == said.to_ascii_lowercase());
                prop_assert_eq!(Host::told(&said), Ok(host));
            }
        }

        #[test]
        fn every_address_that_is_no_mapped_one_is_read(bits: u128, four: u32) {
            let four = IpAddr::from(Ipv4Addr::from_bits(four));
            prop_assert_eq!(Host::told(&four.to_string()), Ok(Host::Address(four)));
            let six = Ipv6Addr::from_bits(bits);
            prop_assume!(six.to_ipv4_mapped().is_none());
            prop_assert_eq!(Host::told(&format!("[{six}]")), Ok(Host::Address(six.into())));
        }
    }
}
