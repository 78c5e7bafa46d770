//! The servers behind the gateway. Stub.

pub mod attached;
pub mod link;
