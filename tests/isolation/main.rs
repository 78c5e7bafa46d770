//! Isolation on the real engine: proven, refused, ended, cleared away. Needs the images of `scripts/setup`, and the
//! fixture server's.

mod bridge;
mod check;
mod endings;
// What the attempts are given to reach, abstract sockets and processes, are things of Linux.
#[cfg(target_os = "linux")]
mod escape;
mod guard;
mod guarded;
mod lease;
mod mutation;
#[cfg(target_os = "linux")]
mod opened;
mod proven;
mod proxy;
mod reap;
mod seats;
mod state;
mod support;
mod trouble;
