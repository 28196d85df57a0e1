//! What the server knows of its model without asking the thread that owns it.

use std::sync::Arc;

use redraft::arch::{Noise, Shape};
use redraft::chat::{ChatTemplate, OutputFormat, RenderOptions};
use redraft::constrain::{Constraint, Language, Vocabulary};
use redraft::sampler::{Params, SAMPLERS, SamplerSpec};
use redraft::tokenizer::Tokenizer;
use redraft::{Error, Model, file_type_name};

/// Facts of a model.
pub(crate) struct Facts {
    /// The name that clients ask for.
    pub(crate) id: String,
    pub(crate) architecture: &'static str,
    pub(crate) file_type: String,
    pub(crate) fingerprint: String,
    pub(crate) numerics: &'static str,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) shape: Shape,
    pub(crate) context_len: usize,
    pub(crate) end_ids: Vec<u32>,
    /// The sampler where nobody asks for another, and those that fit the model, each with the values of its parameters.
    pub(crate) own: &'static SamplerSpec,
    /// The same for a text whose tokens stay at their places.
    pub(crate) in_place: &'static SamplerSpec,
    pub(crate) samplers: Vec<(&'static SamplerSpec, Params)>,
    pub(crate) template: ChatTemplate,
    pub(crate) options: RenderOptions,
    /// The format in which the model writes calls of tools, where it has one that can be read.
    pub(crate) calls: Option<&'static str>,
}

impl Facts {
    pub(crate) fn new(model: &Model, context_len: Option<usize>) -> Result<Facts, Error> {
        let tokenizer = Arc::clone(model.tokenizer());
        let shape = model.shape().clone();
        let masks = matches!(shape.noise, Noise::Mask(_));
        let fit = SAMPLERS.iter().filter(|s| s.masks == masks);
        // One that needs tokens which neither file nor vocabulary names cannot be used without them.
        let samplers = fit.filter_map(|&s| Some((s, model.params(s, &[]).ok()?))).collect();
        let own = model.sampler()?;
        let (template, _) = ChatTemplate::for_tokenizer(&tokenizer)?;
        let options =
            RenderOptions { add_generation_prompt: true, ..RenderOptions::for_tokenizer(&tokenizer) };
        Ok(Facts {
            id: model.name().to_owned(),
            architecture: model.arch().name,
            file_type: file_type_name(model.gguf()),
            fingerprint: format!("fp_{}", &model.sha256_header()[..12]),
            numerics: model.numerics().name(),
            context_len: context_len.unwrap_or(shape.context_len),
            end_ids: tokenizer.end_ids(),
            own,
            in_place: model.arch().sampler.unwrap_or(own),
            samplers,
            template,
            options,
            calls: OutputFormat::of(&tokenizer).map(|f| f.name),
            tokenizer,
            shape,
        })
    }

    /// The samplers that fit the model.
    pub(crate) fn fit(&self) -> Vec<&'static SamplerSpec> {
        self.samplers.iter().map(|(s, _)| *s).collect()
    }

    /// Compiles the language of a reply, which can take seconds.
    pub(crate) fn constraint(&self, language: Language) -> Result<Arc<Constraint>, Error> {
        let mask = if let Noise::Mask(mask) = self.shape.noise { Some(mask) } else { None };
        let vocabulary = Vocabulary::new(&self.tokenizer, self.shape.vocab_len, mask, &self.end_ids);
        Ok(Arc::new(Constraint::new(language, &vocabulary)?))
    }
}
