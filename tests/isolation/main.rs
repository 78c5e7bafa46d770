//! Isolation on the real engine: proven, refused, ended, cleared away. Needs the images of `scripts/setup`, and the
//! fixture server's.

#![allow(dead_code, unused_imports)]

mod mutation;
mod proven;
mod proxy;
mod support;
