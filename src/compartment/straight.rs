//! Whether what is mounted comes to lie where it is asked for. An image may have a link on the way there, and then a host
//! path or a volume would lie over something else: the engine's init, for one, which sees to all that comes after it.

use std::collections::BTreeSet;
use std::path::Path;

use bollard::Docker;
use bollard::query_parameters::ContainerArchiveInfoOptionsBuilder;

use crate::error::{Class, Fault};

use super::Engine;
use super::engine::{CALL, is_missing};
use super::spec::Compartment;

/// What is on the way to where engines put their init, and where else that may lead: as distributions have it.
const INIT: [&str; 3] = ["/sbin", "/usr", "/usr/sbin"];
const USUAL: [&str; 3] = ["/usr/sbin", "/usr/bin", "/bin"];

/// The mark of a link in the engine's modes.
const LINK: u32 = 1 << 27;

/// Refuses a container whose image leads a mount elsewhere. The container is made, and not started.
pub(super) async fn straight(engine: &Engine, docker: &Docker, asked: &Compartment, id: &str) -> Result<(), Fault> {
    let targets: BTreeSet<&str> = asked.targets().collect();
    if targets.is_empty() {
        return Ok(());
    }
    let on_the_way = targets.iter().flat_map(|target| Path::new(target).ancestors()).filter_map(Path::to_str);
    let places: BTreeSet<&str> = on_the_way.filter(|place| *place != "/").chain(INIT).collect();
    for place in places {
        let Some(leads) = link(engine, docker, id, place).await? else { continue };
        if INIT.contains(&place) && USUAL.contains(&leads.as_str()) {
            continue;
        }
        let text = format!(
            "server {}: its image has a link at {place:?} to {leads:?}, so what is mounted would not lie where it is asked for",
            asked.server.name
        );
        return Err(Fault::new(Class::Isolation, text));
    }
    Ok(())
}

/// Where a link leads; none where there is no link.
async fn link(engine: &Engine, docker: &Docker, id: &str, place: &str) -> Result<Option<String>, Fault> {
    let options = ContainerArchiveInfoOptionsBuilder::default().path(place).build();
    let look = async {
        match docker.get_container_archive_info(id, Some(options)).await {
            Err(error) if is_missing(&error) => Ok(None),
            other => other.map(Some),
        }
    };
    let found = engine.call("look into a container", CALL, look).await?;
    let link = found.filter(|stat| stat.file_mode & LINK != 0);
    Ok(link.map(|stat| stat.link_target))
}
