//! The volume that has the probe: filled from its image, and held against it before anything is proven with it. Knows no
//! server.

use std::collections::HashMap;
use std::io::Read as _;
use std::time::Duration;

use bollard::query_parameters::DownloadFromContainerOptions;
use futures_util::TryStreamExt as _;

use crate::error::{Class, Fault};

use super::super::Engine;
use super::super::engine::CALL;
use super::super::owner::Owner;
use super::{Birth, mount, no_archive};

/// The image that has the probe at `/probe`.
pub(in crate::compartment) const PROBE_IMAGE: &str = "bulkhead/probe";
/// Where that image has it, and under which name.
const PROBE_PLACE: &str = "/probe";
const PROBE_NAME: &str = "probe";
/// How often the probe's volume is looked at until it is whole, and the pause between.
const TRIES: usize = 15;
const PAUSE: Duration = Duration::from_millis(200);

/// A volume that is known to have it.
pub(super) struct Probe {
    volume: String,
    born: Birth,
}

impl Engine {
    /// The volume that has the probe, filled from its image when that is first needed.
    pub(in crate::compartment) async fn probe_volume(&self, owner: &Owner) -> Result<String, Fault> {
        let mut known = self.prepared.probe.lock().await;
        if let Some(probe) = known.as_ref()
            && self.volume(&probe.volume, "probe", HashMap::new()).await?.as_ref() == Some(&probe.born)
        {
            return Ok(probe.volume.clone());
        }
        let image = self.probe_image().await?;
        let short = image.trim_start_matches("sha256:").get(..12).unwrap_or_default();
        let volume = format!("bulkhead-probe-{short}");
        let born = self.volume(&volume, "probe", HashMap::new()).await?;
        self.fill(&volume, &image, owner).await?;
        *known = born.map(|born| Probe { volume: volume.clone(), born });
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

    pub(super) async fn probe_image(&self) -> Result<String, Fault> {
        let image = self.image(PROBE_IMAGE).await.map_err(|fault| match fault.class {
            Class::Isolation => Fault::new(
                Class::Isolation,
                format!("without the image {PROBE_IMAGE:?} nothing can be proven, so nothing runs: run scripts/setup"),
            ),
            _ => fault,
        })?;
        Ok(image.id)
    }
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

#[cfg(test)]
mod tests {
    use super::super::archive;
    use super::*;

    #[test]
    fn a_file_goes_into_an_archive_and_comes_out_of_it_whole_or_not_at_all() {
        let file = vec![7; 3000];
        let whole = archive_of(&file, 0o555).unwrap();
        assert_eq!(first_file(&whole), Some((file, 0o555)));
        assert_eq!(first_file(&whole[..2048]), None, "cut in the middle");
        assert_eq!(first_file(&[]), None);
        assert_eq!(first_file(&archive(1).unwrap()), None, "a directory");
    }
}
