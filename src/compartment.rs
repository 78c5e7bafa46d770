//! All that confines an instance, from what is asked to the proof that it holds. Knows no MCP and no client.
//!
//! [`spec`] turns a server's configuration into a [`Compartment`], the only thing a container can be started from;
//! [`start`] starts it and lets nobody speak to it before [`verify`] has held what the [`engine`] reports and what the
//! probe inside [`report`]s against what was asked. [`image`], [`bake`] and [`dedicated`] say where the program comes
//! from, [`volume`] prepares what it may keep, a [`guard`] or a [`fence`] has the network of one that may reach something,
//! a [`seat`] is the processors that it runs on, [`canary`] tries to break out of one, [`reap`] removes what dead gateways
//! left, [`owner`] tells the dead from the living, and a [`lease`] ends what nobody can tell of.
//!
//! Nothing but [`Compartment::plan`], [`Compartment::behind`] and [`Compartment::within`] makes a compartment, and nothing
//! changes one:
//!
//! ```compile_fail,E0451
//! fn loosened(asked: bulkhead::compartment::Compartment) -> bulkhead::compartment::Compartment {
//!     bulkhead::compartment::Compartment { tmpfs: Vec::new(), ..asked }
//! }
//! ```
//!
//! ```compile_fail,E0308
//! use bulkhead::compartment::{Confined, Engine, start};
//! async fn unconfined(engine: &Engine, server: bulkhead::config::Server) -> Confined {
//!     start(engine, server, std::time::Duration::MAX).await.unwrap()
//! }
//! ```

pub mod bake;
pub mod canary;
mod create;
pub mod dedicated;
pub mod engine;
pub mod fence;
pub mod guard;
mod here;
pub mod image;
mod lan;
pub mod lease;
mod opening;
pub mod owner;
pub mod reap;
pub mod report;
pub mod seat;
pub mod spec;
mod start;
mod straight;
#[cfg(test)]
mod testing;
pub mod verify;
mod volume;

pub use engine::Engine;
pub use fence::Fence;
pub use guard::Guard;
pub use image::ImageFacts;
pub use lease::Lease;
pub use owner::Owner;
pub use reap::{Reaped, leftovers, reap};
pub use spec::Compartment;
pub use start::{Confined, start};
