//! What is prepared before a container can be created: the probe's volume, and state that its server may write to.
//! Prepared once: a volume is prepared again only where the engine has made it anew in the meantime. Knows no MCP.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, VolumeCreateRequest};
use bollard::query_parameters::{DownloadFromContainerOptions, UploadToContainerOptions};
use bytes::Bytes;
use dashmap::DashMap;
use futures_util::TryStreamExt as _;
use tokio::sync::Mutex;

use crate::downstream::attached::Attached;
use crate::error::{Class, Fault};

use super::Engine;
use super::create::Made;
use super::engine::CALL;
use super::owner::{Owner, ROLE};
use super::spec::{Compartment, SERVER, Volume};

/// The image that has the probe at `/probe`.
pub(super) const PROBE_IMAGE: &str = "bulkhead/probe";
/// Where that image has it, and under which name.
const PROBE_PLACE: &str = "/probe";
const PROBE_NAME: &str = "probe";
/// How often the probe's volume is looked at until it is whole, and the pause between.
const TRIES: usize = 15;
const PAUSE: Duration = Duration::from_millis(200);
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
        self.fill(&volume, &image, owner).await?;
        *known = Some(Probe { volume: volume.clone(), born });
        Ok(volume)
    }

    /// The engine copies what the image has at that place into an empty volume while it creates a container. Another
    /// gateway may be at it just now, or one was cut off: so what is in the volume is held against the image, waited for,
    /// and mended where it stays wrong. A volume that only looks right would keep every server from being proven.
    async fn fill(&self, volume: &str, image: &str, owner: &Owner) -> Result<(), Fault> {
        let filled = self.helper(image, Some(mount(PROBE_PLACE, volume, false)), owner).await?;
        let original = self.helper(image, None, owner).await?;
        let right = self.content(original.id()).await?;
        let mut holds = false;
        for _ in 0..TRIES {
            holds = self.content(filled.id()).await? == right;
            if holds {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if !holds && let Some((file, mode)) = &right {
            let archive = archive_of(file, *mode).map_err(no_archive)?;
            self.upload(&filled, PROBE_PLACE, archive, "mend the probe's volume").await?;
            holds = self.content(filled.id()).await? == right;
        }
        tokio::join!(filled.discard(), original.discard());
        if holds && right.is_some() {
            return Ok(());
        }
        let text = format!(
            "volume {volume:?} does not hold the probe of image {PROBE_IMAGE:?}: remove both, run scripts/setup"
        );
        Err(Fault::new(Class::Isolation, text))
    }

    /// The probe as a container has it, and its mode; `None` where it has none.
    async fn content(&self, container: &str) -> Result<Option<(Vec<u8>, u32)>, Fault> {
        let docker = self.docker().await?;
        let options = DownloadFromContainerOptions { path: format!("{PROBE_PLACE}/{PROBE_NAME}") };
        let pieces = docker.download_from_container(container, Some(options)).try_collect::<Vec<_>>();
        match self.ask("read the probe", CALL, pieces).await? {
            Ok(pieces) => Ok(first_file(&pieces.concat())),
            Err(refused) if refused.status == 404 => Ok(None),
            Err(refused) => Err(Fault::new(Class::Engine, "the container engine failed to read the probe")
                .with_inward(format!("the container engine failed to read the probe: {}", refused.message))),
        }
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
        let container = self.helper(&image, Some(mount(PLACE, &volume.name, true)), &compartment.owner).await?;
        let owned = self.own(&container, uid).await;
        container.discard().await;
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
        self.upload(container, "/", archive(uid).map_err(no_archive)?, "give a volume to its user").await
    }

    async fn upload(&self, container: &Attached, to: &str, archive: Vec<u8>, what: &str) -> Result<(), Fault> {
        let docker = self.docker().await?;
        let options = UploadToContainerOptions { path: to.to_owned(), ..Default::default() };
        let body = bollard::body_full(Bytes::from(archive));
        self.call(what, CALL, docker.upload_to_container(container.id(), Some(options), body)).await
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
    async fn helper(&self, image: &str, mount: Option<Mount>, owner: &Owner) -> Result<Attached, Fault> {
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

/// The first file of an archive with its mode; `None` where there is none to the last byte.
fn first_file(archive: &[u8]) -> Option<(Vec<u8>, u32)> {
    let mut archive = tar::Archive::new(archive);
    let mut file = archive.entries().ok()?.next()?.ok()?;
    let (mut bytes, mode) = (Vec::new(), file.header().mode().ok()?);
    file.read_to_end(&mut bytes).ok()?;
    (file.header().entry_type().is_file() && bytes.len() as u64 == file.size()).then_some((bytes, mode & 0o7777))
}

fn archive_of(file: &[u8], mode: u32) -> std::io::Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_size(file.len() as u64);
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header, PROBE_NAME, file)?;
    archive.into_inner()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_into_an_archive_and_comes_out_of_it_whole_or_not_at_all() {
        let file = vec![7; 3000];
        let archive = archive_of(&file, 0o555).unwrap();
        assert_eq!(first_file(&archive), Some((file, 0o555)));
        assert_eq!(first_file(&archive[..2048]), None, "cut in the middle");
        assert_eq!(first_file(&[]), None);
        assert_eq!(first_file(&super::archive(1).unwrap()), None, "a directory");
    }
}
