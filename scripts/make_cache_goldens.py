#!/usr/bin/env python3
"""Makes testdata/caches: what the tiny llada and dream of testdata/oracle answer where the steps of a block share keys
and values.

    pip install gguf==0.19.0 numpy==2.4.6
    python scripts/make_cache_goldens.py testdata

cases/<model>.<cache>-<sampler>*  trajectories at temperature 0, rows are whole sequences: `x_in`, `x_out`, `revealed`,
                                  `confidence` and `entropy` (0 where nothing was predicted), `k` revealed, `n_masked`
                                  before, `final`; metadata `config` and `cache`

All numbers are NumPy's in float64, from the stored weights. The rule is that of `generate_with_prefix_cache` and
`generate_with_dual_cache` of NVlabs/Fast-dLLM (arXiv:2505.22618), written anew, and twice: `Cached` keeps keys and values
and reads the other rows alone; `Frozen` reads the whole sequence in each step and puts the kept keys and values over its
own. Both must decide the same and differ by less than 1e-10. Where predictions are in the row before, that row belongs to
the block (docs/caches.md says why, and what the paper's program does instead). Prompts are chosen so that no decision is
near its boundary, and so that the cache changes the answer. Two runs write the same bytes.
"""
import argparse
import json
from pathlib import Path

import numpy as np
from gguf import GGUFReader, quants

from golden_files import save

MASK = 511
# the least distance of a decision from its boundary; probabilities of float32 are 1e-5 away
MARGIN = 2e-3


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        get = lambda name: reader.fields[name].contents()
        self.arch = get("general.architecture")
        key = lambda name: get(f"{self.arch}.{name}")
        self.layers, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads, self.eps = key("attention.head_count_kv"), key("attention.layer_norm_rms_epsilon")
        self.base, self.shifted = key("rope.freq_base"), self.arch == "dream"
        self.w = {t.name: quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        assert get("tokenizer.ggml.mask_token_id") == MASK

    def rms(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def rope(self, x, positions):
        """x [T, heads, d]: dream rotates channels (i, i + d/2), files of llada (2i, 2i + 1)."""
        d = x.shape[-1]
        angle = np.asarray(positions)[:, None] * self.base ** (-2 * np.arange(d // 2) / d)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        one, two = (slice(0, d // 2), slice(d // 2, d)) if self.arch == "dream" else (slice(0, d, 2), slice(1, d, 2))
        out = np.empty_like(x)
        out[..., one], out[..., two] = x[..., one] * cos - x[..., two] * sin, x[..., two] * cos + x[..., one] * sin
        return out

    def forward(self, ids, positions, share):
        """Logits [T, V] of these tokens at these positions. `share(layer, keys, values)` says what their queries see."""
        x = self.w["token_embd.weight"][ids]
        for i in range(self.layers):
            at = lambda n: self.w[f"blk.{i}.{n}"]
            h = self.rms(x, at("attn_norm.weight"))
            q, k, v = ((h @ at(f"attn_{n}.weight").T + self.w.get(f"blk.{i}.attn_{n}.bias", 0)).reshape(len(ids), m, -1)
                       for n, m in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)))
            q, k = self.rope(q, positions), self.rope(k, positions)
            k, v = share(i, k, v)
            k, v = (np.repeat(y, self.heads // self.kv_heads, 1) for y in (k, v))
            p = softmax(np.einsum("ihd,jhd->hij", q, k) * q.shape[-1] ** -0.5)
            x = x + np.einsum("hij,jhd->ihd", p, v).reshape(len(ids), -1) @ at("attn_output.weight").T
            h = self.rms(x, at("ffn_norm.weight"))
            gate = h @ at("ffn_gate.weight").T
            x = x + gate / (1 + np.exp(-gate)) * (h @ at("ffn_up.weight").T) @ at("ffn_down.weight").T
        x = self.rms(x, self.w["output_norm.weight"])
        return x @ self.w.get("output.weight", self.w["token_embd.weight"]).T


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Cached:
    """Keeps keys and values of rows outside, and reads only the rows of the block, and after it with a prefix cache."""

    def __init__(self, model, cache):
        self.model, self.cache = model, cache

    def first(self, x, begin, end):
        n, self.kept = len(x), []
        self.outside = np.r_[0:begin, end:n] if self.cache == "dual" else np.r_[0:begin]
        self.rows = np.setdiff1d(np.arange(n), self.outside)

        def share(i, k, v):
            self.kept.append((k[self.outside], v[self.outside]))
            return k, v

        return self.model.forward(x, np.arange(n), share)

    def later(self, x):
        def share(i, k, v):
            return np.concatenate([self.kept[i][0], k]), np.concatenate([self.kept[i][1], v])

        out = np.full((len(x), self.model.w["token_embd.weight"].shape[0]), np.nan)
        out[self.rows] = self.model.forward(x[self.rows], self.rows, share)
        return out


class Frozen(Cached):
    """Reads everything, but what stands outside keeps the keys and values that it had in the first step."""

    def later(self, x):
        def share(i, k, v):
            k[self.outside], v[self.outside] = self.kept[i]
            return k, v

        out = self.model.forward(x, np.arange(len(x)), share)
        out[self.outside] = np.nan
        return out


class Whole(Cached):
    """No cache."""

    def first(self, x, begin, end):
        return self.later(x)

    def later(self, x):
        return self.model.forward(x, np.arange(len(x)), lambda i, k, v: (k, v))


def even(m, steps):
    return [m // steps + (i < m % steps) for i in range(steps)]


def plan(config, length):
    """How many positions each step reveals at least, block by block."""
    if config["sampler"] == "maskgit-plus":  # by time, in one block
        times = np.linspace(1, config["eps"], config["steps"] + 1)
        left, ks = length, []
        for i in range(config["steps"]):
            ks.append(left if i + 1 == config["steps"] else int(left * (1 - times[i + 1] / times[i])))
            left -= ks[-1]
        return [(0, length, [k for k in ks if k])]
    size = config["block_length"] or length
    begins = range(0, length, size)
    blocks = [(b, min(b + size, length)) for b in begins]
    spread = lambda i: (i + 1) * config["steps"] // len(blocks) - i * config["steps"] // len(blocks)
    steps = [min(max(spread(i), 1), e - b) if config["steps"] else e - b for i, (b, e) in enumerate(blocks)]
    return [(b, e, even(e - b, s)) for (b, e), s in zip(blocks, steps)]


def generate(reading, prompt, length, config):
    """Rows of a trajectory, and its least margin."""
    shifted, rows, least, n = reading.model.shifted, [], [np.inf], len(prompt)
    x = np.array(list(prompt) + [MASK] * length)
    for begin, end, ks in plan(config, length):
        begin, end, step = n + begin, n + end, 0
        while (x[begin:end] == MASK).any():
            # The row before the block predicts its first position.
            logits = reading.later(x) if step else reading.first(x, begin - shifted, end)
            if shifted:
                logits = np.concatenate([logits[:1], logits[:-1]])
            open_ = np.flatnonzero(x == MASK)
            predicted = open_ if step == 0 or config["cache"] == "none" else open_[(begin <= open_) & (open_ < end)]
            p = softmax(logits[predicted])
            entropy, confidence = np.zeros(len(x)), np.zeros(len(x))
            entropy[predicted] = -(p * np.log(p)).sum(-1)
            allowed = np.delete(logits[predicted], MASK, -1)
            token = dict(zip(predicted, allowed.argmax(-1)))
            here = predicted[predicted < end]
            top = np.sort(allowed[predicted < end], -1)[:, -2:]
            least.append((top[:, 1] - top[:, 0]).min())
            confidence[here] = [p[i, token[at]] for i, at in enumerate(predicted) if at < end]
            order = here[np.argsort(-confidence[here], kind="stable")]
            falling, k = confidence[order], ks[step]
            if config["sampler"] == "threshold":
                least.append(np.abs(falling - config["threshold"]).min())
                k = max(k, int((falling > config["threshold"]).sum()))
            if k < len(falling):
                least.append(falling[k - 1] - falling[k])
            y, revealed = x.copy(), np.zeros(len(x), np.uint8)
            revealed[order[:k]] = 1
            y[order[:k]] = [token[at] for at in order[:k]]
            rows.append(dict(x_in=x.copy(), x_out=y, confidence=confidence, entropy=entropy, revealed=revealed,
                             k=int(revealed.sum()), n_masked=len(open_)))
            x, step = y.copy(), step + 1
    out = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return out | {"final": x, "prompt_ids": np.array(prompt)}, float(min(least))


LOW = dict(sampler="low-confidence", steps=0, block_length=8)
CASES = {
    "llada-tiny.BF16": [("prefix", "low-confidence", 11, 24, LOW | dict(steps=15)),
                        ("dual", "low-confidence", 11, 24, LOW | dict(steps=15)),
                        ("dual", "threshold.rest", 9, 21, LOW | dict(sampler="threshold", threshold=0.35)),
                        ("prefix", "low-confidence.one-block", 20, 12, LOW | dict(block_length=0))],
    "dream-tiny.F16": [("prefix", "threshold", 11, 24, LOW | dict(sampler="threshold", threshold=0.35)),
                       ("dual", "low-confidence", 11, 24, LOW | dict(steps=15)),
                       ("dual", "low-confidence.rest", 7, 19, LOW),
                       ("dual", "maskgit-plus", 13, 14, dict(sampler="maskgit-plus", steps=9, eps=1e-3))],
}


def make(model, cache, n, length, config):
    """The first of a row of seeds whose decisions are clear, and whose answer is not that without a cache."""
    config = config | {"cache": cache}
    for seed in range(2000):
        prompt = [int(x) for x in np.random.default_rng(seed).integers(20, 500, n)]
        out, least = generate(Cached(model, cache), prompt, length, config)
        if least < MARGIN:
            continue
        again, _ = generate(Frozen(model, cache), prompt, length, config)
        for name, x in out.items():
            assert np.abs(x - again[name]).max() < (1e-10 if x.dtype.kind == "f" else 1), name
        plain, _ = generate(Whole(model, cache), prompt, length, config | {"cache": "none"})
        if (plain["final"] != out["final"]).any():
            return out, least, int((plain["final"] != out["final"]).sum())
    raise SystemExit("no seed has clear decisions")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("testdata", type=Path)
    testdata = parser.parse_args().testdata
    (testdata / "caches/cases").mkdir(parents=True, exist_ok=True)
    for name, cases in CASES.items():
        model = Model(testdata / f"oracle/models/{name}.gguf")
        for cache, case, n, length, config in cases:
            out, least, differ = make(model, cache, n, length, config)
            out = {k: x.astype(np.float32) if x.dtype.kind == "f" else x for k, x in out.items()}
            metadata = {"model": f"{name}.gguf", "cache": cache, "reference": "scripts/make_cache_goldens.py",
                        "config": json.dumps(config | {"gen_length": length})}
            save(testdata / f"caches/cases/{name}.{cache}-{case}.safetensors", out, metadata)
            print(f"{name} {cache}-{case}: {len(out['k'])} steps, margin {least:.1e}, "
                  f"{differ} of {length} tokens are not those without a cache")


if __name__ == "__main__":
    main()
