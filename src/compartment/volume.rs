//! What is prepared before a container can be created: the probe's volume, and state that its server may write to.
//! Prepared once: a volume is prepared again only where the engine has made it anew in the meantime. Knows no MCP.

use std::collections::HashMap;
use std::sync::Arc;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, VolumeCreateRequest};
use bollard::query_parameters::UploadToContainerOptions;
use bytes::Bytes;
use dashmap::DashMap;
use tokio::sync::Mutex;

use crate::downstream::attached::Attached;
use crate::error::{Class, Fault};

use super::Engine;
use super::create::Made;
use super::engine::{CALL, Refused};
use super::lease::Lease;
use super::owner::{Owner, ROLE};
use super::spec::{Compartment, SERVER, Volume};

mod passing;
mod probe;

pub(super) use passing::KEEP;
pub(super) use probe::PROBE_IMAGE;
use probe::Probe;

/// Where a volume is while it is being prepared.
const PLACE: &str = "/state";

/// The volumes that are known to be prepared.
#[derive(Default)]
pub(super) struct Prepared {
    probe: Mutex<Option<Probe>>,
    volumes: DashMap<String, Arc<Mutex<Option<Given>>>>,
    /// The names of those that are not meant to stay, with their owners.
    passing: DashMap<String, String>,
}

/// A volume that was given to a user.
#[derive(PartialEq, Eq)]
struct Given {
    born: Birth,
    uid: u32,
}

/// What a volume was marked with when it was made: another mark, another volume of the same name. The time that engines
/// tell for it is no such mark, for it moves on with what is in it.
#[derive(Clone, PartialEq, Eq)]
struct Birth(String);

/// Label: which volume of that name it is.
const BORN: &str = "org.bulkhead.born";

impl Engine {
    /// Makes the volumes of a compartment, owned by its user.
    pub(super) async fn prepare_volumes(&self, compartment: &Compartment) -> Result<(), Fault> {
        for volume in &compartment.volumes {
            self.prepare(volume, compartment).await?;
        }
        Ok(())
    }

    async fn prepare(&self, volume: &Volume, compartment: &Compartment) -> Result<(), Fault> {
        let entry = self.prepared.volumes.entry(volume.name.clone()).or_default().clone();
        let mut known = entry.lock().await;
        let uid = compartment.server.uid;
        let mut labels = super::reap::kept_labels(&compartment.owner);
        if !volume.stays {
            self.prepared.passing.insert(volume.name.clone(), compartment.owner.principal.clone());
            labels = passing::labels(compartment, self.terms().session);
        }
        let born = self.volume(&volume.name, compartment.server.name.as_str(), labels).await?;
        let now = born.map(|born| Given { born, uid });
        if now.is_some() && *known == now {
            return Ok(());
        }
        let image = self.probe_image().await?;
        let container = self.helper(&image, Some(mount(PLACE, &volume.name, true)), &compartment.owner).await?;
        let owned = self.own(&container, uid).await;
        container.discard().await;
        owned?;
        *known = now;
        Ok(())
    }

    /// Gives the place to a user: an archive with the directory itself sets its owner, with no program run as root.
    async fn own(&self, container: &Attached, uid: u32) -> Result<(), Fault> {
        self.upload(container, "/", archive(uid).map_err(no_archive)?, "give a volume to its user").await
    }

    async fn upload(&self, container: &Attached, to: &str, archive: Vec<u8>, what: &str) -> Result<(), Fault> {
        let docker = self.docker().await?;
        let options = UploadToContainerOptions { path: to.to_owned(), ..Default::default() };
        let body = bollard::body_full(Bytes::from(archive));
        self.call(what, CALL, docker.upload_to_container(container.id(), Some(options), body)).await
    }

    /// Sees to it that there is a volume of that name, and tells which; none where it has no mark of ours. One that
    /// somebody else made with a host directory, or another machine, behind it is refused.
    async fn volume(&self, name: &str, server: &str, labels: HashMap<String, String>) -> Result<Option<Birth>, Fault> {
        let docker = self.docker().await?;
        let volume = match self.ask("look for a volume", CALL, docker.inspect_volume(name)).await? {
            Ok(volume) => volume,
            Err(Refused { status: 404, .. }) => {
                let request = request(name, server, labels);
                self.call("create a volume", CALL, docker.create_volume(request)).await?
            }
            Err(why) => {
                let text = "the container engine failed to look for a volume";
                return Err(Fault::new(Class::Engine, text).with_inward(format!("{text}: {}", why.message)));
            }
        };
        if volume.driver != "local" || !volume.options.is_empty() {
            let text = format!("volume {name:?} was not made by the gateway: remove it, or rename the server");
            return Err(Fault::new(Class::Isolation, text)
                .with_inward(format!("volume {name:?} is of driver {:?} with options of its own", volume.driver)));
        }
        Ok(volume.labels.get(BORN).cloned().map(Birth))
    }

    /// A container that is never started: it only gives a volume a place.
    async fn helper(&self, image: &str, mount: Option<Mount>, owner: &Owner) -> Result<Attached, Fault> {
        let docker = self.docker().await?;
        let mut labels = owner.labels(Lease::from_now(self.terms().work));
        labels.insert(ROLE.to_owned(), "helper".to_owned());
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            cmd: Some(vec!["/never-started".to_owned()]),
            labels: Some(labels),
            network_disabled: Some(true),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                mounts: Some(mount.into_iter().collect()),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let name = uuid::Uuid::new_v4().simple().to_string();
        let mut made = Made::ask(&docker, format!("bulkhead-helper-{name:.12}"), body);
        self.call("create a container", CALL, made.answer()).await?;
        made.keep().ok_or_else(|| Fault::new(Class::Bug, "a container that was made is missing"))
    }
}

fn request(name: &str, server: &str, mut labels: HashMap<String, String>) -> VolumeCreateRequest {
    let mark = uuid::Uuid::new_v4().simple().to_string();
    labels.extend([(ROLE, "volume"), (SERVER, server), (BORN, &mark)].map(|(k, v)| (k.to_owned(), v.to_owned())));
    VolumeCreateRequest { name: Some(name.to_owned()), labels: Some(labels), ..Default::default() }
}

fn mount(target: &str, volume: &str, bare: bool) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(volume.to_owned()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions { no_copy: Some(bare), ..MountVolumeOptions::default() }),
        ..Mount::default()
    }
}

fn no_archive(error: std::io::Error) -> Fault {
    Fault::new(Class::Bug, format!("an archive cannot be made: {error}"))
}

/// The directory at that place, as its user's alone.
fn archive(uid: u32) -> std::io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_path(PLACE.trim_start_matches('/'))?;
    header.set_mode(0o700);
    header.set_uid(uid.into());
    header.set_gid(uid.into());
    header.set_size(0);
    header.set_cksum();
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header, std::io::empty())?;
    archive.into_inner()
}
