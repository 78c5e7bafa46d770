//! What is prepared before a container can be created: the probe's volume, and state that its server may write to.
//! Knows no MCP.

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountType, MountVolumeOptions, VolumeCreateRequest};
use bollard::query_parameters::{RemoveContainerOptions, UploadToContainerOptions};
use bytes::Bytes;

use crate::error::{Class, Fault};

use super::Engine;
use super::engine::{CALL, is_missing};
use super::owner::ROLE;
use super::spec::{Compartment, SERVER, Volume};

/// The image that has the probe at `/probe`.
const PROBE_IMAGE: &str = "bulkhead/probe";
/// Where a volume is while it is being prepared.
const PLACE: &str = "/state";

impl Engine {
    /// The volume that has the probe, filled from its image when that is first needed.
    pub(super) async fn probe_volume(&self) -> Result<String, Fault> {
        let mut known = self.probe.lock().await;
        if let Some(name) = known.as_ref() {
            return Ok(name.clone());
        }
        let image = self.image(PROBE_IMAGE).await.map_err(|fault| match fault.class {
            Class::Isolation => Fault::new(
                Class::Isolation,
                format!("without the image {PROBE_IMAGE:?} nothing can be proven, so nothing runs: run scripts/setup"),
            ),
            _ => fault,
        })?;
        let short = image.id.trim_start_matches("sha256:").get(..16).unwrap_or_default();
        let name = format!("bulkhead-probe-{short}");
        self.create_volume(&name, "probe").await?;
        // The engine copies what the image has at that place into an empty volume when a container is created. Doing it
        // twice, or in two gateways at once, copies the same bytes.
        let mount = Mount {
            target: Some("/probe".to_owned()),
            source: Some(name.clone()),
            typ: Some(MountType::VOLUME),
            ..Mount::default()
        };
        let container = self.helper(&image.id, mount).await?;
        self.drop_helper(&container).await?;
        *known = Some(name.clone());
        Ok(name)
    }

    /// Makes the volumes of a compartment, owned by its user.
    pub(super) async fn prepare_volumes(&self, compartment: &Compartment) -> Result<(), Fault> {
        for volume in &compartment.volumes {
            self.prepare(volume, compartment).await?;
        }
        Ok(())
    }

    async fn prepare(&self, volume: &Volume, compartment: &Compartment) -> Result<(), Fault> {
        self.create_volume(&volume.name, compartment.server.name.as_str()).await?;
        let probe = self.image(PROBE_IMAGE).await?;
        let mount = Mount {
            target: Some(PLACE.to_owned()),
            source: Some(volume.name.clone()),
            typ: Some(MountType::VOLUME),
            volume_options: Some(MountVolumeOptions { no_copy: Some(true), ..MountVolumeOptions::default() }),
            ..Mount::default()
        };
        let container = self.helper(&probe.id, mount).await?;
        let owned = self.own(&container, compartment.server.uid).await;
        self.drop_helper(&container).await?;
        owned
    }

    /// Gives the place to a user: an archive with the directory itself sets its owner, with no program run as root.
    async fn own(&self, container: &str, uid: u32) -> Result<(), Fault> {
        let docker = self.docker().await?;
        let options = UploadToContainerOptions { path: "/".to_owned(), ..Default::default() };
        let archive = archive(uid).map_err(|e| Fault::new(Class::Bug, format!("an archive cannot be made: {e}")))?;
        let upload = docker.upload_to_container(container, Some(options), bollard::body_full(Bytes::from(archive)));
        self.call("give a volume to its user", CALL, upload).await
    }

    async fn create_volume(&self, name: &str, server: &str) -> Result<(), Fault> {
        let docker = self.docker().await?;
        let labels = [(ROLE, "volume"), (SERVER, server)].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let request =
            VolumeCreateRequest { name: Some(name.to_owned()), labels: Some(labels.into()), ..Default::default() };
        self.call("create a volume", CALL, docker.create_volume(request)).await.map(drop)
    }

    /// A container that is never started: it only gives a volume a place.
    async fn helper(&self, image: &str, mount: Mount) -> Result<String, Fault> {
        let docker = self.docker().await?;
        let body = ContainerCreateBody {
            image: Some(image.to_owned()),
            cmd: Some(vec!["/never-started".to_owned()]),
            network_disabled: Some(true),
            host_config: Some(HostConfig {
                network_mode: Some("none".to_owned()),
                mounts: Some(vec![mount]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let created = self.call("create a container", CALL, docker.create_container(None, body)).await?;
        Ok(created.id)
    }

    async fn drop_helper(&self, container: &str) -> Result<(), Fault> {
        let docker = self.docker().await?;
        let options = RemoveContainerOptions { force: true, ..Default::default() };
        let remove = async {
            match docker.remove_container(container, Some(options)).await {
                Err(error) if is_missing(&error) => Ok(()),
                other => other,
            }
        };
        self.call("remove a container", CALL, remove).await
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
