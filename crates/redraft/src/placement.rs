//! What of a model goes to a device, and what stays with the processor.

use redraft_compute::{Placement, WeightTable};

/// Bytes of a layer on a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Layer {
    experts: u64,
    others: u64,
}

/// What weights take on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    layers: Vec<Layer>,
    /// What belongs to no layer: embedding, head, last norm.
    rest: u64,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// For the backend.
    pub placement: Placement,
    /// Bytes of weights on the device.
    pub bytes: u64,
    /// Layers of the model, and those whose experts there are.
    layers: [usize; 2],
}

/// What somebody decided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The last so many layers go to the device.
    pub device_layers: Option<usize>,
    /// The experts of the first so many layers stay with the processor.
    pub host_experts: Option<usize>,
}

impl Sizes {
    /// By the names that GGUF gives to tensors: `blk.N.` and, of experts, `_exps`.
    pub fn of(weights: &WeightTable, bytes: impl Fn(&redraft_compute::Weight) -> u64) -> Sizes {
        let mut sizes = Sizes { layers: Vec::new(), rest: 0 };
        for w in weights.iter() {
            let layer = w.name.strip_prefix("blk.").and_then(|n| n.split('.').next()?.parse::<usize>().ok());
            let n = bytes(w);
            match layer {
                None => sizes.rest += n,
                Some(i) => {
                    if sizes.layers.len() <= i {
                        sizes.layers.resize(i + 1, Layer::default());
                    }
                    let layer = &mut sizes.layers[i];
                    *(if w.name.contains("_exps") { &mut layer.experts } else { &mut layer.others }) += n;
                }
            }
        }
        sizes
    }

    /// Bytes on a device.
    fn bytes(&self, p: Placement) -> u64 {
        let of = |(i, l): (usize, &Layer)| match i {
            i if i < p.host_layers => 0,
            i if i < p.host_experts => l.others,
            _ => l.others + l.experts,
        };
        self.rest + self.layers.iter().enumerate().map(of).sum::<u64>()
    }

    /// Bytes of the least that a device can have: the last layer without experts, and what belongs to none.
    pub fn least(&self) -> u64 {
        let n = self.layers.len();
        self.bytes(Placement { host_layers: n.saturating_sub(1), host_experts: n })
    }

    /// The placement that puts the most on a device with room for `room` bytes of weights: first experts stay with the
    /// processor, layer after layer, since a token uses few of them; then layers. What is wanted is done, whether it fits or
    /// not. None where not even the last layer has room.
    pub fn fit(&self, wanted: Wanted, room: u64) -> Option<Plan> {
        let n = self.layers.len();
        let with_experts = self.layers.iter().rposition(|l| l.experts > 0).map_or(0, |i| i + 1);
        let plan = |placement| Plan { placement, bytes: self.bytes(placement), layers: [n, with_experts] };
        let of = |layers: usize, experts: usize| Placement { host_layers: layers, host_experts: experts };
        let least = wanted.device_layers.map_or(0, |l| n - l.min(n));
        let experts = wanted.host_experts.map(|e| e.min(with_experts));
        if wanted.device_layers.is_some() && experts.is_some() {
            return Some(plan(of(least, experts.unwrap_or(0))));
        }
        let fits = |p: &Plan| p.bytes <= room;
        let by_experts = (0..=with_experts).map(|e| plan(of(least, experts.unwrap_or(e)))).find(fits);
        let all = experts.unwrap_or(with_experts);
        let most = if wanted.device_layers.is_some() { least + 1 } else { n };
        let by_layers = || (least..most).map(|l| plan(of(l, all))).find(fits);
        match by_experts.or_else(by_layers) {
            None if wanted.device_layers.is_some() => Some(plan(of(least, all))),
            found => found,
        }
    }
}

impl Plan {
    /// In words, for people.
    pub fn describe(&self, device: &str, room: u64) -> String {
        let gib = |n: u64| n as f64 / (1u64 << 30) as f64;
        let [n, with_experts] = self.layers;
        let Placement { host_layers, host_experts } = self.placement;
        let mut text = format!(
            "{device}: {} of {n} layers, {:.2} GiB of weights beside at most {:.2} GiB",
            n - host_layers,
            gib(self.bytes),
            gib(room)
        );
        if host_layers > 0 {
            text += &format!("; the processor computes the first {host_layers}");
        }
        if host_experts > host_layers && with_experts > 0 {
            text += &format!("; experts of the first {host_experts} layers stay with the processor");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four layers of 10, experts of 100 in all but the first, 50 for the rest.
    fn sizes() -> Sizes {
        let layer = |experts| Layer { experts, others: 10 };
        Sizes { layers: vec![layer(0), layer(100), layer(100), layer(100)], rest: 50 }
    }

    fn placed(wanted: Wanted, room: u64) -> Option<([usize; 2], u64)> {
        sizes().fit(wanted, room).map(|p| ([p.placement.host_layers, p.placement.host_experts], p.bytes))
    }

    #[test]
    fn experts_stay_first_then_layers() {
        let none = Wanted::default();
        assert_eq!(placed(none, 390), Some(([0, 0], 390)));
        assert_eq!(placed(none, 389), Some(([0, 2], 290)));
        assert_eq!(placed(none, 190), Some(([0, 3], 190)));
        assert_eq!(placed(none, 90), Some(([0, 4], 90)));
        assert_eq!(placed(none, 75), Some(([2, 4], 70)));
        assert_eq!(placed(none, 59), None);
    }

    #[test]
    fn what_is_wanted_is_done() {
        let layers = |n| Wanted { device_layers: Some(n), host_experts: None };
        assert_eq!(placed(layers(2), 1000), Some(([2, 0], 270)));
        assert_eq!(placed(layers(2), 200), Some(([2, 3], 170)));
        assert_eq!(placed(layers(2), 10), Some(([2, 4], 70)));
        let experts = Wanted { device_layers: None, host_experts: Some(2) };
        assert_eq!(placed(experts, 1000), Some(([0, 2], 290)));
        let both = Wanted { device_layers: Some(9), host_experts: Some(9) };
        assert_eq!(placed(both, 0), Some(([0, 4], 90)));
    }

    #[test]
    fn a_plan_says_what_stays() {
        let plan = sizes().fit(Wanted::default(), 75).unwrap();
        let text = plan.describe("a card", 75);
        assert!(
            text.contains("2 of 4 layers") && text.contains("the first 2") && text.contains("first 4 layers"),
            "{text}"
        );
    }
}
