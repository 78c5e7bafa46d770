//! Isolation on the real engine: proven, refused, ended, cleared away. Needs the images of `scripts/setup`, and the
//! fixture server's.

mod endings;
mod lease;
mod mutation;
mod proven;
mod proxy;
mod reap;
mod state;
mod support;
mod trouble;
