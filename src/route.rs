//! From exposed names to servers and their own names, and the lists that clients see. Pure: no I/O, no clock; who may see
//! what is asked of [`crate::gate`].

pub mod catalog;
pub mod listing;
pub mod lock;
pub mod page;
pub mod review;
pub mod scan;

pub use catalog::{Catalog, Entry};
pub use listing::{Item, Listing};
