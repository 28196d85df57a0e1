//! What `run --json` reports, and the same in words.

use std::time::Duration;

use redraft::Model;
use redraft::chat::{Answer, ToolCall, Warning};
use redraft::engine::{BlockCache, CanvasReport, Digests, Finish, Generation, Request};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::model::ModelReport;
use crate::ui::progress::{counted, human_bytes};
use crate::version::VERSION;

/// The object of `run --json`. Field names are part of the program's contract.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    text: String,
    reasoning: String,
    tool_calls: Vec<Value>,
    ids: Vec<u32>,
    finish_reason: &'static str,
    warnings: Vec<Warning>,
    usage: Usage,
    diffusion: Diffusion,
    timings: Timings,
    memory: Memory,
    seed: u64,
    model: ModelReport,
    backend: &'static str,
    numerics: &'static str,
    kv_type: &'static str,
    digest: Digests,
    version: &'static str,
}

#[derive(Debug, Serialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
}

#[derive(Debug, Serialize)]
struct Diffusion {
    sampler: &'static str,
    profile: &'static str,
    /// Which keys and values the steps of a block shared, where they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<&'static str>,
    parameters: Map<String, Value>,
    /// Ids that were never drawn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ban: Vec<u32>,
    canvases: Vec<Canvas>,
    tokens_per_forward: f64,
}

#[derive(Debug, Serialize)]
struct Canvas {
    steps: usize,
    stop: &'static str,
    accepted_per_step: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Timings {
    load_ms: f64,
    prompt_ms: f64,
    first_draft_ms: f64,
    denoise_ms: f64,
    total_ms: f64,
    ms_per_step: f64,
    /// Tokens that the user gets per second of prompt, denoising and sampling.
    wall_tok_s: f64,
    /// The same tokens per second of denoising.
    decode_tok_s: f64,
    /// Canvas length per second of one step. Not a throughput.
    in_step_tok_s: f64,
}

#[derive(Debug, Serialize)]
struct Memory {
    peak_rss_bytes: Option<u64>,
    weights_bytes: u64,
    kv_bytes: usize,
    /// Sliding layers hold their last tokens only.
    kv_windowed: bool,
}

/// Milliseconds to the microsecond.
fn ms(d: Duration) -> f64 {
    rounded(d.as_secs_f64() * 1e3)
}

/// Three digits after the point.
fn rounded(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

/// `count` per second; 0 where no time passed.
fn rate(count: usize, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { rounded(count as f64 / time.as_secs_f64()) }
}

/// What the reader of an answer should know, besides the answer.
pub(crate) fn warnings(done: &Generation, answer: &Answer) -> Vec<Warning> {
    let mut out = answer.warnings.clone();
    if done.ids.is_empty() {
        let message = "the answer is empty: the model ended at once; another --seed or wording may help";
        out.push(Warning { code: "empty_answer", message: message.into() });
    } else if answer.text.trim().is_empty() && answer.tool_calls.is_empty() {
        let message = "the answer is empty: the model wrote nothing that is shown";
        out.push(Warning { code: "empty_answer", message: message.into() });
    }
    if done.repetition {
        let message = "the answer ends where it began to repeat itself";
        out.push(Warning { code: "repetition", message: message.into() });
    }
    out
}

impl Report {
    /// Counts only the tokens that the model wrote, not those that were given.
    pub(crate) fn of_fill(mut self, done: &Generation, written: usize) -> Report {
        let steps: usize = done.canvases.iter().map(|c| c.steps).sum();
        self.usage.completion_tokens = written;
        self.usage.total_tokens = self.usage.prompt_tokens + done.ids.len();
        self.diffusion.tokens_per_forward = rounded(written as f64 / steps.max(1) as f64);
        self.timings.wall_tok_s = rate(written, done.timings.total);
        self.timings.decode_tok_s = rate(written, done.timings.denoise);
        self
    }

    pub(crate) fn new(
        model: &Model,
        request: &Request,
        done: &Generation,
        answer: &Answer,
        seed: u64,
        load: Duration,
    ) -> Report {
        let steps: usize = done.canvases.iter().map(|c| c.steps).sum();
        let step_time = done.timings.denoise / u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
        let n = done.ids.len();
        let canvas = |c: &CanvasReport| Canvas {
            steps: c.steps,
            stop: c.stop.name(),
            accepted_per_step: c.accepted_per_step.clone(),
        };
        Report {
            text: answer.text.clone(),
            reasoning: answer.reasoning.clone(),
            tool_calls: answer.tool_calls.iter().map(ToolCall::to_api).collect(),
            ids: done.ids.clone(),
            finish_reason: match done.finish {
                Finish::Stop if !answer.tool_calls.is_empty() => "tool_calls",
                finish => finish.name(),
            },
            warnings: warnings(done, answer),
            usage: Usage {
                prompt_tokens: request.prompt.len(),
                completion_tokens: n,
                total_tokens: request.prompt.len() + n,
            },
            diffusion: Diffusion {
                sampler: request.sampler.name,
                profile: request.profile.name,
                cache: Some(request.cache).filter(|&c| c != BlockCache::None).map(BlockCache::name),
                parameters: request.params.to_json(),
                ban: request.ban.clone(),
                canvases: done.canvases.iter().map(canvas).collect(),
                tokens_per_forward: rounded(n as f64 / steps.max(1) as f64),
            },
            timings: Timings {
                load_ms: ms(load),
                prompt_ms: ms(done.timings.prompt),
                first_draft_ms: ms(done.timings.first_draft),
                denoise_ms: ms(done.timings.denoise),
                total_ms: ms(done.timings.total),
                ms_per_step: ms(step_time),
                wall_tok_s: rate(n, done.timings.total),
                decode_tok_s: rate(n, done.timings.denoise),
                in_step_tok_s: rate(
                    model.shape().canvases(request.prompt.len(), request.max_tokens).len,
                    step_time,
                ),
            },
            memory: Memory {
                peak_rss_bytes: peak_rss_bytes(),
                weights_bytes: model.weights_bytes(),
                kv_bytes: done.kv_bytes,
                kv_windowed: done.kv_windowed,
            },
            seed,
            model: ModelReport::of(model),
            backend: model.backend().capabilities().backend,
            numerics: model.numerics().name(),
            kv_type: model.kv_type().name(),
            digest: done.digests.clone(),
            version: VERSION,
        }
    }

    /// Why the answer ended.
    pub(crate) fn finish_reason(&self) -> &'static str {
        self.finish_reason
    }

    /// Tokens of the prompt.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.usage.prompt_tokens
    }

    fn steps(&self) -> usize {
        self.diffusion.canvases.iter().map(|c| c.steps).sum()
    }

    /// One line for people.
    pub(crate) fn summary(&self) -> String {
        let canvases = self.diffusion.canvases.len();
        format!(
            "[{} in {canvases} canvas{} and {}, {:.2} s, {:.1} tok/s]",
            counted(self.usage.completion_tokens, "token"),
            if canvases == 1 { "" } else { "es" },
            counted(self.steps(), "step"),
            self.timings.total_ms / 1e3,
            self.timings.wall_tok_s
        )
    }

    /// All figures for people.
    pub(crate) fn lines(&self) -> Vec<String> {
        let t = &self.timings;
        let canvases: Vec<String> =
            self.diffusion.canvases.iter().map(|c| format!("{} {}", c.steps, c.stop)).collect();
        let mut lines = vec![
            format!(
                "{} ({}), {:.2} per forward pass; steps of each canvas: {}{}",
                counted(self.usage.completion_tokens, "token"),
                self.finish_reason,
                self.diffusion.tokens_per_forward,
                canvases.join(", "),
                self.diffusion.cache.map_or(String::new(), |c| format!("; approximated by --cache {c}"))
            ),
            format!(
                "prompt {:.1} ms, first draft {:.1} ms, denoising {:.1} ms ({:.2} ms a step), total {:.1} ms",
                t.prompt_ms, t.first_draft_ms, t.denoise_ms, t.ms_per_step, t.total_ms
            ),
            format!(
                "wall {:.1} tok/s, decode {:.1} tok/s, in step {:.1} tok/s (not a throughput)",
                t.wall_tok_s, t.decode_tok_s, t.in_step_tok_s
            ),
            format!(
                "weights {}, KV cache {} in {}{}{}",
                human_bytes(self.memory.weights_bytes),
                human_bytes(self.memory.kv_bytes as u64),
                self.kv_type,
                if self.memory.kv_windowed { " (sliding layers: the last tokens only)" } else { "" },
                self.memory
                    .peak_rss_bytes
                    .map_or(String::new(), |b| format!(", peak memory {}", human_bytes(b)))
            ),
            format!("digest of the ids {}", self.digest.ids),
        ];
        lines.extend(self.digest.full.as_ref().map(|full| format!("digest of all logits {full}")));
        lines
    }
}

/// Most memory that this process has had, where the system says it.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use redraft::sampler::json_number;

    use super::*;

    #[test]
    fn rates_and_numbers() {
        assert_eq!(rate(3, Duration::from_millis(1500)), 2.0);
        assert_eq!(rate(3, Duration::ZERO), 0.0);
        assert_eq!(json_number(48.0).to_string(), "48");
        assert_eq!(json_number(0.1).to_string(), "0.1");
        assert_eq!(ms(Duration::from_nanos(1_234_567)), 1.235);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn peak_memory_is_known() {
        assert!(peak_rss_bytes().is_some_and(|b| b > 1 << 20));
    }
}
