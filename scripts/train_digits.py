#!/usr/bin/env python3
"""Trains testdata/caches/digits*.gguf, a small model of masks on tasks whose answers are known, and writes its questions.

    pip install gguf==0.19.0 numpy==2.4.6 jax==0.10.2
    python scripts/train_digits.py testdata --minutes 20
    python scripts/train_digits.py testdata --questions-only

A prompt is a letter, 24 digits and `=`; the answer is 24 digits: `c` the same, `r` from the last to the first, `o` in rising
order, `s` running sums modulo 10, `a` the sum of the first 12 and the last 12 digits as numbers, with zeros before it. The
model is a LLaDA of four layers, 64 wide. As in its paper (arXiv:2502.09992, section 2.3) each token of the answer is
masked with a probability t that is drawn for the sequence, and the loss of masked ones is divided by t. The schedule follows
the clock, so two runs give different weights, and the files are kept: digits.BF16.gguf is the end of a run of 20 minutes and
about 2,500 steps on two shared cores, digits-early.BF16.gguf the state after 1,000 of them. Questions are drawn from a seed of
their own.
"""
import argparse
import json
import time
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter

from golden_files import finish_model

V, D, LAYERS, HEADS, FF, EPS, BASE = 512, 64, 4, 4, 160, 1e-6, 10000.0
N, MASK, TASKS = 24, 511, "croas"


def answers(task, x):
    """x [B, N] digits -> [B, N]."""
    if task == "c":
        return x
    if task == "r":
        return x[:, ::-1]
    if task == "o":
        return np.sort(x, -1)
    if task == "s":
        return np.cumsum(x, -1) % 10
    out, carry = np.zeros_like(x), np.zeros(len(x), x.dtype)
    for i in range(N // 2):
        total = x[:, N // 2 - 1 - i] + x[:, N - 1 - i] + carry
        out[:, N - 1 - i], carry = total % 10, total // 10
    out[:, N // 2 - 1] = carry
    return out


def batch(r, size):
    """ids [size, 2 N + 2]; the answer is the last N."""
    x = r.integers(0, 10, (size, N))
    task = r.integers(0, len(TASKS), size)
    y = np.zeros_like(x)
    for i, name in enumerate(TASKS):
        y[task == i] = answers(name, x[task == i])
    letter = np.array([ord(t) for t in TASKS])[task]
    return np.concatenate([letter[:, None], x + 48, np.full((size, 1), ord("=")), y + 48], 1).astype(np.int32)


def init(r):
    std = lambda s, *shape: (r.standard_normal(shape) * s).astype(np.float32)
    w = {"token_embd.weight": std(0.5, V, D), "output_norm.weight": np.full(D, 0.3, np.float32)}
    for i in range(LAYERS):
        b = f"blk.{i}."
        for n in ("attn_norm", "ffn_norm"):
            w[f"{b}{n}.weight"] = np.ones(D, np.float32)
        for n in ("q", "k", "v"):
            w[f"{b}attn_{n}.weight"] = std(D ** -0.5, D, D)
        w[b + "attn_output.weight"] = std(0.3 * D ** -0.5, D, D)
        w[b + "ffn_gate.weight"], w[b + "ffn_up.weight"] = std(D ** -0.5, FF, D), std(D ** -0.5, FF, D)
        w[b + "ffn_down.weight"] = std(0.3 * FF ** -0.5, D, FF)
    return w


def train(path, minutes):
    import jax
    import jax.numpy as jnp

    d = D // HEADS
    angle = np.arange(2 * N + 2)[:, None] * BASE ** (-2 * np.arange(d // 2) / d)
    cos, sin = np.cos(angle)[:, None].astype(np.float32), np.sin(angle)[:, None].astype(np.float32)

    def rms(x, w):
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + EPS) * w

    def rope(x):  # [B, T, heads, d]: pairs (2 i, 2 i + 1)
        a, b = x[..., 0::2], x[..., 1::2]
        return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)

    def logits(w, ids):
        x = w["token_embd.weight"][ids]
        for i in range(LAYERS):
            at = lambda n: w[f"blk.{i}.{n}.weight"]
            h = rms(x, at("attn_norm"))
            q, k, v = ((h @ at(f"attn_{n}").T).reshape(*ids.shape, HEADS, d) for n in "qkv")
            p = jax.nn.softmax(jnp.einsum("bihd,bjhd->bhij", rope(q), rope(k)) * d ** -0.5, -1)
            x = x + jnp.einsum("bhij,bjhd->bihd", p, v).reshape(*ids.shape, D) @ at("attn_output").T
            h = rms(x, at("ffn_norm"))
            x = x + (jax.nn.silu(h @ at("ffn_gate").T) * (h @ at("ffn_up").T)) @ at("ffn_down").T
        # Only the answer has a loss.
        return rms(x[:, -N:], w["output_norm.weight"]) @ w["token_embd.weight"].T

    def loss(w, ids, hidden, t):
        masked = jnp.concatenate([ids[:, :-N], jnp.where(hidden, MASK, ids[:, -N:])], 1)
        p = jax.nn.log_softmax(logits(w, masked), -1)
        p = jnp.take_along_axis(p, ids[:, -N:, None], -1)[..., 0]
        return -(jnp.where(hidden, p, 0) / t).sum() / (len(ids) * N)

    @jax.jit
    def step(w, m, v, n, rate, ids, hidden, t):
        value, g = jax.value_and_grad(loss)(w, ids, hidden, t)
        norm = jnp.sqrt(sum((x * x).sum() for x in g.values()))
        g = {k: x * jnp.minimum(1, 1 / norm) for k, x in g.items()}
        m = {k: 0.9 * m[k] + 0.1 * x for k, x in g.items()}
        v = {k: 0.98 * v[k] + 0.02 * x * x for k, x in g.items()}
        move = lambda k: m[k] / (1 - 0.9 ** n) / (jnp.sqrt(v[k] / (1 - 0.98 ** n)) + 1e-8)
        return {k: x - rate * (move(k) + (0.01 * x if x.ndim > 1 else 0)) for k, x in w.items()}, m, v, value

    r = np.random.default_rng(1)
    w = init(r)
    m, v = ({k: np.zeros_like(x) for k, x in w.items()} for _ in range(2))
    start, n, mean = time.time(), 0, 0.0
    while (part := (time.time() - start) / (60 * minutes)) < 1:
        n += 1
        rate = 3e-3 * min(1, part / 0.03) * (0.02 + 0.98 * (1 + np.cos(np.pi * part)) / 2)
        ids, t = batch(r, 128), r.uniform(0.05, 1, (128, 1)).astype(np.float32)
        w, m, v, value = step(w, m, v, n, rate, ids, r.random((128, N)) < t, t)
        mean += (float(value) - mean) * max(0.01, 1 / n)
        if n % 100 == 0:
            print(f"step {n}, {part:.0%}: loss {mean:.4f}", flush=True)
        if n == 1000:
            write(path.with_name("digits-early.BF16.gguf"), {k: np.asarray(x) for k, x in w.items()})
    write(path, {k: np.asarray(x) for k, x in w.items()})


def write(path, w):
    vocab = json.loads((path.parent.parent / "tokenizer/llada-tiny.vocab.json").read_text())
    g = GGUFWriter(path, "llada")
    g.add_name("digits (scripts/train_digits.py)")
    g.add_license("cc0-1.0")
    g.add_block_count(LAYERS), g.add_context_length(256), g.add_embedding_length(D), g.add_feed_forward_length(FF)
    g.add_head_count(HEADS), g.add_layer_norm_rms_eps(EPS), g.add_rope_freq_base(BASE)
    g.add_bool("diffusion.shift_logits", False)
    g.add_tokenizer_model(vocab["model"]), g.add_tokenizer_pre(vocab["pre"])
    g.add_token_list(vocab["tokens"]), g.add_token_types(vocab["types"]), g.add_token_merges(vocab["merges"])
    g.add_eos_token_id(vocab["eos"]), g.add_pad_token_id(vocab["pad"]), g.add_mask_token_id(MASK)
    g.add_add_bos_token(False)
    finish_model(g, w, GGMLQuantizationType.BF16)


def questions(path, each):
    """`each` questions of a task: `prompt` and `answer` as texts of one token a character."""
    r, out = np.random.default_rng(2), []
    for task in TASKS:
        x = r.integers(0, 10, (each, N))
        for a, b in zip(x, answers(task, x)):
            out.append({"prompt": f"{task}{''.join(map(str, a))}=", "answer": "".join(map(str, b))})
    path.write_text("[\n" + ",\n".join(map(json.dumps, out)) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("testdata", type=Path)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--questions-only", action="store_true")
    args = parser.parse_args()
    folder = args.testdata / "caches"
    questions(folder / "questions.json", 100)
    if not args.questions_only:
        train(folder / "digits.BF16.gguf", args.minutes)


if __name__ == "__main__":
    main()
