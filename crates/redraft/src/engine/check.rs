//! Whether a request fits the model, its sampler and the context.

use super::canvas::{check_guidance, check_kv_type};
use super::{BlockCache, Request};
use crate::arch::{Noise, Reading, Shape};
use crate::sampler::{PROFILES, Params, SAMPLERS};
use crate::{Error, Model};

/// Refuses a request that cannot be answered, before anything is computed. `answer`: the position after the last one of
/// the answer.
pub(super) fn request(model: &Model, request: &Request, answer: usize) -> Result<(), Error> {
    let shape = model.shape();
    if request.prompt.is_empty() && request.given.is_empty() {
        return Err(Error::Request {
            what: "prompt".into(),
            expected: "at least one token".into(),
            found: "none".into(),
        });
    }
    if request.max_tokens == 0 {
        return Err(Error::Request {
            what: "max_tokens".into(),
            expected: "at least 1".into(),
            found: "0".into(),
        });
    }
    let masks = matches!(shape.noise, Noise::Mask(_));
    if request.sampler.masks != masks {
        let fit = SAMPLERS.iter().filter(|s| s.masks == masks).map(|s| s.name).collect::<Vec<_>>().join(", ");
        let begins = if masks { "mask tokens" } else { "random tokens" };
        return Err(Error::Request {
            what: format!("sampler for a model whose canvas begins as {begins}"),
            expected: fit,
            found: request.sampler.name.into(),
        });
    }
    if masks && request.profile.name != PROFILES[0].name {
        return Err(Error::Request {
            what: "profile of a model whose canvas begins as mask tokens".into(),
            expected: format!("{}, which each of them has", PROFILES[0].name),
            found: request.profile.name.into(),
        });
    }
    if request.params.get("cfg_scale") > 0.0 {
        check_guidance(model)?;
    }
    block_cache(request, model)?;
    commands(&request.params, model.shape())?;
    if request.sampler.moves() && !request.given.is_empty() {
        return Err(Error::Request {
            what: "sampler for a text with gaps".into(),
            expected: "one that leaves tokens at their places".into(),
            found: request.sampler.name.into(),
        });
    }
    // Given text has the length that it has.
    let most = request.max_tokens;
    if request.given.is_empty() && request.least_tokens() > most {
        return Err(Error::Request {
            what: "min_tokens".into(),
            expected: format!("at most the {most} tokens that the answer can have"),
            found: request.least_tokens().to_string(),
        });
    }
    context(model, request, answer)
}

/// `answer`: the position after the last one of the answer.
pub(super) fn context(model: &Model, request: &Request, answer: usize) -> Result<(), Error> {
    let answer = answer.saturating_add(model.shape().reserved(request.sampler));
    if request.prompt.len().saturating_add(answer) > request.context_len {
        return Err(Error::ContextOverflow {
            prompt: request.prompt.len(),
            answer,
            context: request.context_len,
        });
    }
    Ok(())
}

/// Whether the steps of a block can share keys and values.
fn block_cache(request: &Request, model: &Model) -> Result<(), Error> {
    let name = request.cache.name();
    if request.cache == BlockCache::None {
        return check_kv_type(model);
    }
    if model.shape().reading != Reading::Whole {
        return Err(Error::Request {
            what: "cache".into(),
            expected: format!(
                "none, since {} has a cache of its own; those of blocks are for models that read prompt and answer whole",
                model.arch().name
            ),
            found: name.into(),
        });
    }
    let cfg_scale = request.params.get("cfg_scale");
    if cfg_scale > 0.0 {
        return Err(Error::Request {
            what: format!("cfg_scale with the cache {name}"),
            expected: "0: passes without the prompt would need a cache of their own".into(),
            found: cfg_scale.to_string(),
        });
    }
    Ok(())
}

/// The tokens by which a sampler deletes and inserts, where it does: two of the vocabulary.
pub(crate) fn commands(params: &Params, shape: &Shape) -> Result<(), Error> {
    let Noise::Mask(mask) = shape.noise else { return Ok(()) };
    let mut others = vec![f64::from(mask), 0.0];
    for name in ["delete_token", "split_token"] {
        let id = params.get(name);
        if id >= shape.vocab_len as f64 || others.contains(&id) {
            return Err(Error::Request {
                what: name.into(),
                expected: format!(
                    "the id in 1..{} that does so in this model, another one than that of the mask and of the other",
                    shape.vocab_len
                ),
                found: id.to_string(),
            });
        }
        others.push(id);
    }
    Ok(())
}
