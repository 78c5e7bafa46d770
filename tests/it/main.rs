//! The program as a whole: the real binary in front of real servers in real containers, one module a behaviour.
#![cfg(unix)]
#![recursion_limit = "256"]

mod audit;
mod bake;
mod bridge;
mod calls;
mod canaries;
mod clients;
mod config;
mod egress_limits;
mod engine_down;
mod eras;
mod flood;
mod framing;
mod gc;
mod image;
mod import;
mod install;
mod killed;
mod kills;
mod limits;
mod lists;
mod lock;
mod neighbours;
mod network;
mod others;
mod reach;
mod reap;
mod registry;
mod reload;
mod roles;
mod stress;
mod support;
mod tidy;
mod tricks;
mod twenty;
