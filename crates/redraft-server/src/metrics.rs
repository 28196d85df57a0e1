//! Figures for Prometheus.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Seconds of a round of the batch that are told apart.
const ROUND_SECONDS: [f64; 12] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0];

/// What kind of tokens, requests or refusals are counted.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Kind {
    kind: &'static str,
}

/// A path and how it was answered.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Answered {
    pub(crate) path: String,
    pub(crate) status: u16,
}

/// The figures.
pub(crate) struct Metrics {
    registry: Registry,
    /// Answers that wait for a place.
    pub(crate) waiting: Gauge,
    /// Answers that are being made: how full the batch is.
    pub(crate) running: Gauge,
    /// Bytes of keys and values that idle sessions keep.
    pub(crate) cache_bytes: Gauge,
    pub(crate) steps: Counter,
    pub(crate) rounds: Histogram,
    tokens: Family<Kind, Counter>,
    rejects: Family<Kind, Counter>,
    pub(crate) requests: Family<Answered, Counter>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        let mut m = Metrics {
            registry: Registry::with_prefix("redraft"),
            waiting: Gauge::default(),
            running: Gauge::default(),
            cache_bytes: Gauge::default(),
            steps: Counter::default(),
            rounds: Histogram::new(ROUND_SECONDS),
            tokens: Family::default(),
            rejects: Family::default(),
            requests: Family::default(),
        };
        let r = &mut m.registry;
        r.register("queue_waiting", "Answers that wait for a place in the batch", m.waiting.clone());
        r.register("batch_running", "Answers in the batch", m.running.clone());
        r.register("cache_bytes", "Keys and values that idle sessions keep", m.cache_bytes.clone());
        r.register("steps", "Denoising steps of all answers", m.steps.clone());
        r.register(
            "round_seconds",
            "Time of a round, in which each answer in the batch does one step or reads a part of its prompt",
            m.rounds.clone(),
        );
        r.register(
            "tokens",
            "Tokens: prompt (read), cached (of prompts, reused), completion",
            m.tokens.clone(),
        );
        r.register("rejects", "Requests for answers that were turned away", m.rejects.clone());
        r.register("http_requests", "Requests by path and status", m.requests.clone());
        m
    }

    pub(crate) fn tokens(&self, kind: &'static str, n: usize) {
        self.tokens.get_or_create(&Kind { kind }).inc_by(n as u64);
    }

    pub(crate) fn rejected(&self, kind: &'static str) {
        self.rejects.get_or_create(&Kind { kind }).inc();
    }

    /// In the text form of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
