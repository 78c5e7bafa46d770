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
use super::engine::CALL;
use super::owner::{Owner, ROLE};
use super::spec::{Compartment, SERVER, Volume};

/// The image that has the probe at `/probe`.
const PROBE_IMAGE: &str = "bulkhead/probe";
/// Where a volume is while it is being prepared.
const PLACE: &str = "/state";

/// The volumes that are known to be prepared.
#[derive(Default)]
pub(super) struct Prepared {
    probe: Mutex<Option<Probe>>,
    volumes: DashMap<String, Arc<Mutex<Option<Given>>>>,
}

struct Probe {
    volume: String,
    born: Birth,
}

/// A volume that was given to a user.
#[derive(PartialEq, Eq)]
struct Given {
    born: Birth,
    uid: u32,
}

/// When the engine made a volume, in its own words: another time, another volume of the same name.
#[derive(Clone, PartialEq, Eq)]
struct Birth(String);

impl Engine {
    /// The volume that has the probe, filled from its image when that is first needed.
    pub(super) async fn probe_volume(&self, owner: &Owner) -> Result<String, Fault> {
        let mut known = self.prepared.probe.lock().await;
        if let Some(probe) = known.as_ref()
            && self.volume(&probe.volume, "probe").await? == probe.born
        {
            return Ok(probe.volume.clone());
        }
        let image = self.probe_image().await?;
        let short = image.trim_start_matches("sha256:").get(..16).unwrap_or_default();
        let volume = format!("bulkhead-probe-{short}");
        let born = self.volume(&volume, "probe").await?;
        // The engine copies what the image has at that place into an empty volume when a container is created. Doing it
        // twice, or in two gateways at once, copies the same bytes.
        self.helper(&image, mount("/probe", &volume, false), owner).await?.kill().await;
        *known = Some(Probe { volume: volume.clone(), born });
        Ok(volume)
    }

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
        let born = self.volume(&volume.name, compartment.server.name.as_str()).await?;
        let now = Some(Given { born, uid });
        if *known == now {
            return Ok(());
        }
        let image = self.probe_image().await?;
        let container = self.helper(&image, mount(PLACE, &volume.name, true), &compartment.owner).await?;
        let owned = self.own(&container, uid).await;
        container.kill().await;
        owned?;
        *known = now;
        Ok(())
    }

    async fn probe_image(&self) -> Result<String, Fault> {
        let image = self.image(PROBE_IMAGE).await.map_err(|fault| match fault.class {
            Class::Isolation => Fault::new(
                Class::Isolation,
                format!("without the image {PROBE_IMAGE:?} nothing can be proven, so nothing runs: run scripts/setup"),
            ),
            _ => fault,
        })?;
        Ok(image.id)
    }

    /// Gives the place to a user: an archive with the directory itself sets its owner, with no program run as root.
    async fn own(&self, container: &Attached, uid: u32) -> Result<(), Fault> {
        let docker = self.docker().await?;
        let options = UploadToContainerOptions { path: "/".to_owned(), ..Default::default() };
        let archive = archive(uid).map_err(|e| Fault::new(Class::Bug, format!("an archive cannot be made: {e}")))?;
        let body = bollard::body_full(Bytes::from(archive));
        let upload = docker.upload_to_container(container.id(), Some(options), body);
        self.call("give a volume to its user", CALL, upload).await
    }

    /// Sees to it that there is a volume of that name. One that somebody else made with a host directory, or another
    /// machine, behind it is refused.
    async fn volume(&self, name: &str, server: &str) -> Result<Birth, Fault> {
        let docker = self.docker().await?;
        let labels = [(ROLE, "volume"), (SERVER, server)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let request =
            VolumeCreateRequest { name: Some(name.to_owned()), labels: Some(labels.into()), ..Default::default() };
        let volume = self.call("create a volume", CALL, docker.create_volume(request)).await?;
        if volume.driver != "local" || !volume.options.is_empty() {
            let text = format!("volume {name:?} was not made by the gateway: remove it, or rename the server");
            return Err(Fault::new(Class::Isolation, text)
                .with_inward(format!("volume {name:?} is of driver {:?} with options of its own", volume.driver)));
        }
        Ok(Birth(volume.created_at.map(|at| at.to_string()).unwrap_or_default()))
    }

    /// A container that is never started: it only gives a volume a place.
    async fn helper(&self, image: &str, mount: Mount, owner: &Owner) -> Result<Attached, Fault> {
        let docker = self.docker().await?;
        let mut labels: HashMap<String, String> = owner.labels();
        labels.insert(ROLE.to_owned(), "helper".to_owned());
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            cmd: Some(vec!["/never-started".to_owned()]),
            labels: Some(labels),
            network_disabled: Some(true),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                mounts: Some(vec![mount]),
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

fn mount(target: &str, volume: &str, bare: bool) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(volume.to_owned()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions { no_copy: Some(bare), ..MountVolumeOptions::default() }),
        ..Mount::default()
    }
}

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
