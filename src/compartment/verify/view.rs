//! The readings laid out for the controls, and the words in which controls tell them. Pure.

use bollard::models::{ContainerConfig, ContainerInspectResponse, HostConfig, NetworkInspect};

use super::super::engine::Defaults;
use super::super::report::{MountLine, Report};
use super::super::spec::Compartment;
use super::{Control, Readings};

/// What only the engine can know.
pub(super) const UNSEEN: &str = "-";

/// All readings, beside what was asked.
pub(super) struct View<'a> {
    pub asked: &'a Compartment,
    pub probe: &'a str,
    pub defaults: &'a Defaults,
    pub engine: &'a ContainerInspectResponse,
    pub network: Option<&'a NetworkInspect>,
    pub host: HostConfig,
    pub config: ContainerConfig,
    pub inside: &'a Report,
    /// Every mount that is seen; none where they cannot be read.
    pub mounts: Option<Vec<MountLine>>,
}

impl<'a> View<'a> {
    pub(super) fn new(asked: &'a Compartment, readings: &Readings<'a>) -> Self {
        let Readings { probe, defaults, engine, network, inside } = *readings;
        View {
            asked,
            probe,
            defaults,
            engine,
            network,
            host: engine.host_config.clone().unwrap_or_default(),
            config: engine.config.clone().unwrap_or_default(),
            inside,
            mounts: inside.mounts(),
        }
    }

    pub(super) fn is_reported(&self) -> bool {
        self.engine.host_config.is_some() && self.engine.config.is_some()
    }

    /// The only mount at a place; none where there is none, or more than one.
    pub(super) fn mount(&self, at: &str) -> Option<&MountLine> {
        let mut here = self.mounts.iter().flatten().filter(|m| m.at == at);
        here.next().filter(|_| here.next().is_none())
    }

    /// Entries of the security options that begin with one of the words.
    pub(super) fn security_options(&self, words: &[&str]) -> Vec<&str> {
        let all = self.host.security_opt.iter().flatten().map(String::as_str);
        all.filter(|option| words.contains(&option.split([':', '=']).next().unwrap_or_default())).collect()
    }
}

pub(super) fn control(control: &'static str, asked: &str, engine: String, inside: String, holds: bool) -> Control {
    Control { control, asked: asked.to_owned(), engine, inside, holds }
}

pub(super) fn or_unread(text: Option<&str>) -> String {
    text.unwrap_or("cannot be read").to_owned()
}

pub(super) fn shown<T: std::fmt::Debug>(value: &Option<T>) -> String {
    value.as_ref().map_or_else(|| "not set".to_owned(), |v| format!("{v:?}"))
}

/// Engines write a list without entries as none.
pub(super) fn empty<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_none_or(Vec::is_empty)
}

/// `as asked`, or what it is instead.
pub(super) fn as_asked(holds: bool, instead: impl FnOnce() -> String) -> String {
    if holds { "as asked".to_owned() } else { instead() }
}
