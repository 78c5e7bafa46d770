//! A network of IPv4 as it is written.

use std::net::Ipv4Addr;

/// `10.0.0.0/8`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    pub(crate) address: Ipv4Addr,
    pub(crate) length: u8,
}

impl Subnet {
    /// None where it is no such text, or has bits beyond its length.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let found = Subnet { address: address.parse().ok()?, length: length.parse().ok().filter(|n| *n <= 32)? };
        (found.address.to_bits() & !found.mask() == 0).then_some(found)
    }

    /// The bits that count.
    pub(crate) fn mask(self) -> u32 {
        u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0)
    }
}
