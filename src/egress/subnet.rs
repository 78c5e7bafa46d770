//! A network of IPv4: an address and how many of its bits count. Pure.

use std::fmt;
use std::net::Ipv4Addr;

/// `10.0.0.0/8`. Bits beyond its length are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subnet {
    address: Ipv4Addr,
    length: u8,
}

impl Subnet {
    /// The network of so many bits that an address is in; more than 32 are 32.
    pub const fn of(address: Ipv4Addr, length: u8) -> Self {
        let length = if length > 32 { 32 } else { length };
        Subnet { address: Ipv4Addr::from_bits(address.to_bits() & mask(length)), length }
    }

    /// One address alone.
    pub const fn host(address: Ipv4Addr) -> Self {
        Subnet::of(address, 32)
    }

    /// What is written as `10.0.0.0/8`; none where it is not, or has bits beyond its length.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length) = (address.parse().ok()?, length.parse().ok().filter(|length| *length <= 32)?);
        Some(Subnet::of(address, length)).filter(|found| found.address == address)
    }

    /// Its first address.
    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    /// How many bits count.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The bits that count.
    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(mask(self.length))
    }

    /// An address in it: the second one where there is one, since the first often names the network itself.
    pub fn example(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.address.to_bits() | u32::from(self.length < 32))
    }

    /// Whether all of another network is in it.
    pub fn holds(self, other: Subnet) -> bool {
        self.length <= other.length && Subnet::of(other.address, self.length) == self
    }
}

const fn mask(length: u8) -> u32 {
    if length == 0 { 0 } else { u32::MAX << (32 - length as u32) }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_read_as_it_is_written() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "172.16.0.0/12", "192.0.2.7/32"] {
            assert_eq!(Subnet::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "10.0.0.0", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0/8", "::/0", "010.0.0.0/8"] {
            assert_eq!(Subnet::parse(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_in_a_network_is_told() {
        let net = |text: &str| Subnet::parse(text).unwrap();
        let private = net("172.16.0.0/12");
        assert!(private.holds(private) && private.holds(net("172.31.255.0/24")) && private.holds(net("172.16.0.0/32")));
        assert!(!private.holds(net("172.32.0.0/16")) && !private.holds(net("172.0.0.0/8")));
        assert_eq!(
            (private.mask().to_string(), private.example().to_string()),
            ("255.240.0.0".into(), "172.16.0.1".into())
        );
        assert_eq!(net("192.0.2.7/32").example().to_string(), "192.0.2.7");
        assert_eq!(Subnet::of(Ipv4Addr::new(10, 1, 2, 3), 16), net("10.1.0.0/16"));
    }
}
