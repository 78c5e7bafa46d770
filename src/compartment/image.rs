//! What is known of an image before anything is made of it. Knows no server.

use std::collections::BTreeMap;

use crate::error::{Class, Fault};

use super::engine::{CALL, is_missing};
use super::{Engine, dedicated};

/// What an image says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its identity, `sha256:…`.
    pub id: String,
    /// The program it starts.
    pub entrypoint: Vec<String>,
    /// The arguments of that.
    pub command: Vec<String>,
    /// The environment it brings.
    pub env: BTreeMap<String, String>,
    /// Paths for which it wants anonymous volumes.
    pub volumes: Vec<String>,
}

impl Engine {
    /// Looks at an image. One that is not there is never pulled at that moment: what runs was chosen before.
    pub async fn image(&self, reference: &str) -> Result<ImageFacts, Fault> {
        let docker = self.docker().await?;
        let found = self
            .call("look at the image", CALL, async {
                match docker.inspect_image(reference).await {
                    Err(error) if is_missing(&error) => Ok(None),
                    other => other.map(Some),
                }
            })
            .await?;
        let Some(image) = found else {
            let get = match dedicated::name_in(reference) {
                Some(name) => format!("run \"bulkhead image build {name}\""),
                None => "build it, pull it, or lock anew".to_owned(),
            };
            let text = format!("image {reference:?} is not on the engine: {get}");
            return Err(Fault::new(Class::Isolation, text));
        };
        let config = image.config.unwrap_or_default();
        let env = config.env.unwrap_or_default().into_iter();
        Ok(ImageFacts {
            id: image.id.unwrap_or_default(),
            entrypoint: config.entrypoint.unwrap_or_default(),
            command: config.cmd.unwrap_or_default(),
            env: env.filter_map(|e| e.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()))).collect(),
            volumes: config.volumes.unwrap_or_default().into_iter().collect(),
        })
    }

    /// Looks at an image that comes with the program.
    pub(super) async fn own_image(&self, reference: &str) -> Result<ImageFacts, Fault> {
        self.image(reference).await.map_err(|fault| match fault.class {
            Class::Isolation => {
                Fault::new(fault.class, format!("its image {reference:?} is not on the engine; run scripts/setup"))
            }
            _ => fault,
        })
    }
}
