//! All that confines an instance. Stub.

pub mod bake;
