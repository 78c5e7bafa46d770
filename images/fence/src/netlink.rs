//! Messages to the kernel and its answers. Knows nothing of what they are about.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with, sockopt,
};

/// Flags of a request.
pub(crate) const REPLACE: u16 = 0x100;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
const REQUEST: u16 = 1;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;

/// Kinds of answers.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// An attribute that holds attributes.
const NESTED: u16 = 0x8000;

/// Length, kind, flags, number and sender of a message.
const HEAD: usize = 16;

/// How long the kernel may take for an answer, in seconds: it gives one before it returns from the request.
const PATIENCE: u64 = 5;

/// Attributes, in their order.
#[derive(Default)]
pub(crate) struct Attributes(Vec<u8>);

impl Attributes {
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// A number in the order of the machine, as routes have it.
    pub(crate) fn number(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_ne_bytes())
    }

    /// A number in the order of the network, as the filter has it.
    pub(crate) fn big(self, kind: u16, value: u32) -> Self {
        self.with(kind, &value.to_be_bytes())
    }

    pub(crate) fn text(self, kind: u16, value: &str) -> Self {
        self.with(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(crate) fn nest(self, kind: u16, inner: Attributes) -> Self {
        self.with(NESTED | kind, &inner.0)
    }
}

/// A message, without its number.
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    /// One that the kernel says yes or no to.
    pub(crate) fn new(kind: u16, flags: u16, header: &[u8], attributes: Attributes) -> Self {
        Message { kind, flags: REQUEST | ACK | flags, body: [header, &attributes.0].concat() }
    }

    /// The same with a body that was read.
    pub(crate) fn of(kind: u16, body: &[u8]) -> Self {
        Message { kind, flags: REQUEST | ACK, body: body.to_vec() }
    }

    /// One that is answered with all that there is of something.
    pub(crate) fn dump(kind: u16, header: &[u8]) -> Self {
        Message { kind, flags: REQUEST | DUMP, body: header.to_vec() }
    }

    /// One that has no answer.
    pub(crate) fn silent(kind: u16, header: &[u8]) -> Self {
        Message { kind, flags: REQUEST, body: header.to_vec() }
    }

    fn write(&self, number: u32, to: &mut Vec<u8>) {
        to.extend(u32::try_from(HEAD + self.body.len()).unwrap_or(u32::MAX).to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend(self.flags.to_ne_bytes());
        to.extend(number.to_ne_bytes());
        to.extend(0u32.to_ne_bytes());
        to.extend(&self.body);
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

/// A conversation with one part of the kernel.
pub(crate) struct Netlink {
    socket: OwnedFd,
    number: u32,
}

impl Netlink {
    /// With that part; none is the one for routes.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
        let patience = std::time::Duration::from_secs(PATIENCE);
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(patience))?;
        Ok(Netlink { socket, number: 0 })
    }

    /// Asks for one thing.
    pub(crate) fn ask(&mut self, message: &Message) -> io::Result<()> {
        self.all(std::slice::from_ref(message))
    }

    /// Asks for several things at once. The first that is refused is the answer.
    pub(crate) fn all(&mut self, messages: &[Message]) -> io::Result<()> {
        self.send(messages)?;
        let mut left = messages.iter().filter(|message| message.flags & ACK != 0).count();
        while left > 0 {
            for (kind, body) in self.receive()? {
                if kind == ERROR {
                    verdict(&body)?;
                    left = left.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// The bodies of all that there is.
    pub(crate) fn dump(&mut self, message: Message) -> io::Result<Vec<Vec<u8>>> {
        self.send(&[message])?;
        let mut found = Vec::new();
        loop {
            for (kind, body) in self.receive()? {
                match kind {
                    DONE => return Ok(found),
                    ERROR => verdict(&body)?,
                    _ => found.push(body),
                }
            }
        }
    }

    fn send(&mut self, messages: &[Message]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for message in messages {
            self.number += 1;
            message.write(self.number, &mut bytes);
        }
        send(&self.socket, &bytes, SendFlags::empty())?;
        Ok(())
    }

    /// The messages of one answer, each as its kind and its body.
    fn receive(&self) -> io::Result<Vec<(u16, Vec<u8>)>> {
        let mut space = vec![0; 1 << 17];
        let (length, _) = recv(&self.socket, &mut space[..], RecvFlags::empty())?;
        let mut rest = &space[..length.min(space.len())];
        let mut found = Vec::new();
        while let Some((size, kind)) = u32_at(rest, 0).zip(u16_at(rest, 4)) {
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            let body = rest.get(HEAD..size).ok_or(io::ErrorKind::InvalidData)?;
            found.push((kind, body.to_vec()));
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(found)
    }
}

/// What the kernel has to say to a request.
fn verdict(body: &[u8]) -> io::Result<()> {
    let code: [u8; 4] = body.get(..4).and_then(|code| code.try_into().ok()).ok_or(io::ErrorKind::InvalidData)?;
    match i32::from_ne_bytes(code) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
    }
}

/// The attributes in a part of a body.
pub(crate) fn attributes(mut rest: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some((size, kind)) = u16_at(rest, 0).zip(u16_at(rest, 2)) {
        let size = usize::from(size);
        let Some(value) = rest.get(4..size) else { break };
        found.push((kind & !NESTED, value));
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
