//! The servers behind the gateway: started in their compartment, spoken to, supervised, ended. Knows no client.
//!
//! [`pool`] has the instances; [`peer`] speaks MCP with one of them over a [`link`]; [`handshake`] opens the conversation
//! and lists the tools; [`attached`] is a container's link and [`unisolated`] a host process's; [`guarded`] is that of a container which may reach
//! something, and [`witness`] has the audit hear of what.

pub mod attached;
pub mod budget;
pub mod guarded;
pub mod handshake;
pub mod instance;
pub mod link;
mod obituary;
mod pace;
pub mod peer;
pub mod pool;
pub mod tail;
pub mod trouble;
pub mod unisolated;
pub mod witness;
