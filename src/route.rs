//! From exposed names to servers. Stub.

pub mod lock;
