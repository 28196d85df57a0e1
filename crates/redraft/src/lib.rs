//! Engine for text-diffusion language models.
