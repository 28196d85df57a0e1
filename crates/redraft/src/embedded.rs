//! The model inside the library: `redraft-tiny`, ten million parameters, so that everything can be tried at
//! once on any machine. How it was made: `docs/models/redraft-tiny.md`.

use redraft_gguf::{Bytes, Gguf};

use crate::{Error, LoadOptions, Model};

static REDRAFT_TINY: &[u8] = include_bytes!("../model/redraft-tiny.gguf");

impl Model {
    /// The embedded model.
    ///
    /// # Errors
    /// Those of the backend; the file itself is part of the build.
    pub fn embedded(options: &LoadOptions) -> Result<Model, Error> {
        Model::from_gguf(Model::embedded_file()?, options)
    }

    /// Its file, for what needs no weights.
    ///
    /// # Errors
    /// None that a build with its tests passed can have.
    pub fn embedded_file() -> Result<Gguf, Error> {
        Ok(Gguf::from_bytes(Bytes::from(REDRAFT_TINY))?)
    }
}
