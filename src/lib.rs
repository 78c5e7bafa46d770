//! Bulkhead: one MCP endpoint in front of many MCP servers, each in its own container.
//!
//! The life of a call, module by module:
//!
//! 1. [`client`] frames the client's bytes and knows who is behind them.
//! 2. [`session`] is the conversation as a state machine: era, ids, calls in flight.
//! 3. [`route`] turns an exposed name into a server and its own name for the tool.
//! 4. [`gate`] decides whether this principal may, and whether it may now.
//! 5. [`audit`] makes the intent durable before anything leaves.
//! 6. [`downstream`] has the right instance, started in its [`compartment`] and proven before the first client byte.
//! 7. [`audit`] records the outcome, and the answer goes back the same way.
//!
//! [`flow`] is that list as one function. [`wire`] and [`protocol`] are the languages spoken on both sides, [`config`] is
//! what the operator asked for, [`clients`] where clients name us, [`app`] wires everything up, and [`cli`] holds one file a
//! command.

pub mod app;
pub mod audit;
pub mod cli;
pub mod client;
pub mod clients;
pub mod compartment;
pub mod config;
pub mod downstream;
pub mod egress;
pub mod error;
pub mod flow;
pub mod gate;
pub mod name;
pub mod protocol;
pub mod route;
pub mod session;
pub mod telemetry;
pub mod text;
pub mod wire;

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}
