//! Makes a network namespace of a container reach public addresses alone, gives up every right to change that, and
//! holds the namespace until its stdin ends. Knows nothing of who is to live in it.
//!
//!     fence up GATEWAY REFUSED NAMES UID PROGRAM [ARG…]
//!     fence hold
//!
//! REFUSED is what may not be reached, NAMES what may be reached at port 53 all the same: networks as `10.0.0.0/8`,
//! parted by commas, `-` for none. Where several fit, the narrowest counts. What is refused is refused twice: by routes,
//! so that a connection fails at once and everybody inside can see why; and by a packet filter, since a socket that is
//! bound to an interface asks no route.
//!
//! It begins as root of its container, with the rights over its network and over itself. It becomes PROGRAM as that user,
//! with no right left that could come back.

mod filter;
mod netlink;
mod privileges;
mod routes;
mod subnet;

use std::env;
use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use subnet::Subnet;

/// The arguments are none of the above.
const EXIT_USAGE: u8 = 2;
/// The kernel does not do as it is asked.
const EXIT_UNABLE: u8 = 1;

/// What is asked for.
pub(crate) struct Plan {
    gateway: Ipv4Addr,
    refused: Vec<Subnet>,
    names: Vec<Subnet>,
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args[..] {
        ["hold"] => io::copy(&mut io::stdin(), &mut io::sink()).map(drop),
        ["up", gateway, refused, names, user, program, ref rest @ ..] => {
            let plan = plan(gateway, refused, names).zip(user.parse().ok().filter(|user| *user != 0));
            match plan {
                Some((plan, user)) => Err(up(&plan, user, program, rest)),
                None => return usage(),
            }
        }
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => told(&error.to_string(), EXIT_UNABLE),
    }
}

fn usage() -> ExitCode {
    told("usage: fence up GATEWAY REFUSED NAMES UID PROGRAM [ARG...] | fence hold", EXIT_USAGE)
}

fn told(text: &str, code: u8) -> ExitCode {
    let _ = writeln!(io::stderr(), "fence: {text}");
    ExitCode::from(code)
}

fn plan(gateway: &str, refused: &str, names: &str) -> Option<Plan> {
    let list = |text: &str| match text {
        "-" => Some(Vec::new()),
        text => text.split(',').map(Subnet::parse).collect(),
    };
    Some(Plan { gateway: gateway.parse().ok()?, refused: list(refused)?, names: list(names)? })
}

/// Returns only where something could not be done.
fn up(plan: &Plan, user: u32, program: &str, args: &[&str]) -> io::Error {
    // Looked at before anything is changed: a network that is not as expected may be somebody else's.
    let done = routes::Routes::look(plan).and_then(|routes| {
        filter::set(plan)?;
        routes.set(plan)?;
        privileges::drop_all(user)
    });
    match done {
        Ok(()) => named(&format!("cannot run {program:?}"), Command::new(program).args(args).exec()),
        Err(error) => error,
    }
}

/// The error with what was being done.
pub(crate) fn named(what: &str, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
