//! Isolation on the real engine: proven, refused, ended, cleared away. Needs the images of `scripts/setup`, and the
//! fixture server's.

mod endings;
mod guard;
mod mutation;
mod proven;
mod proxy;
mod reap;
mod speed;
mod state;
mod support;
mod trouble;
