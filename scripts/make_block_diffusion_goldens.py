#!/usr/bin/env python3
"""Makes testdata/block-diffusion: tiny models of families that read block by block, and of one that can, and what
they must compute.

    pip install gguf==0.19.0 numpy==2.4.6
    python scripts/make_block_diffusion_goldens.py testdata
    pip install torch==2.15.0 transformers==5.24.0
    python scripts/make_block_diffusion_goldens.py testdata --check

models/<family>-tiny.BF16.gguf  two layers, 64 wide, 512 tokens, random weights: matrices in BF16, the rest in F32
cases/<model>.forward           one pass over `ids`, which end inside a block: `logits` [T, V] and taps
cases/<model>.cached            `prompt_ids` of which whole blocks are read first, in chunks of `chunk_lengths`; what is
                                left of them leads `canvas_ids`; `logits` [canvas, V], taps of each pass, who sees whom
cases/<model>.sampler-*         trajectories at temperature 0, rows are whole sequences: `x_in`, `x_out`, `revealed`,
                                `confidence` (0 where nothing could be revealed), `argmax` (of all positions, the mask
                                counted), `k` revealed, `n_masked` before, `final`

All numbers are NumPy's in float64, from the stored weights. A pass always goes over a whole sequence under the
block-causal mask: nothing is cached here. The rules are those of `generate.py` of JetAstra/SDAR, of `generate` of
Fast-dLLM v2 and of section 3.3 of the paper on Fast-dLLM, written anew; penalties are those of docs/samplers.md
(repetition as in transformers, presence as in llama.cpp), ends of the answer, the ids `eos`, are banned from its first
`min_tokens` positions (as in transformers' `min_new_tokens`), and an answer is done when it has an end and no mask before;
prompts are chosen so that no decision is near
its boundary. --check compares the forward pass with transformers' Qwen3, Qwen3-MoE and Qwen2 in float64 under a mask of
four dimensions, without writing anything. Two runs write the same bytes.
"""
import argparse
import json
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

from golden_files import finish_model, save, stored_as_f32

V, D, LAYERS = 512, 64, 2
COMMON = dict(heads=4, kv=2, eps=1e-6, base=1e6, bias=False, norms=False, experts=None, shifted=False)
MODELS = {
    "sdar": COMMON | dict(block=4, head_dim=24, ff=96, norms=True),
    "sdar-moe": COMMON | dict(block=8, head_dim=24, ff=32, norms=True, experts=(6, 2)),
    "fast-dllm": COMMON | dict(block=16, head_dim=16, ff=96, bias=True, shifted=True),
    # without blocks: everything sees everything
    "a2d-qwen3": COMMON | dict(block=None, head_dim=24, ff=96, norms=True),
}
MASK = 511
# the least distance of a decision from its boundary; logits and probabilities of float32 are 1e-5 away
MARGIN = 1e-3


# --- models

def weights(c, seed):
    """Name -> array, values exact in the type they are stored in."""
    r = np.random.default_rng(seed)
    std = lambda s, *shape: (r.standard_normal(shape) * s).astype(np.float32)
    around = lambda x, n: (x * r.uniform(0.6, 1.4, n)).astype(np.float32)
    q, kv, f = c["heads"] * c["head_dim"], c["kv"] * c["head_dim"], c["ff"]
    w = {"token_embd.weight": std(1, V, D), "output_norm.weight": around(5, D), "output.weight": std(D ** -0.5, V, D)}
    for i in range(LAYERS):
        b = f"blk.{i}."
        w[b + "attn_norm.weight"] = around(1, D)
        for name, width in (("q", q), ("k", kv), ("v", kv)):
            w[f"{b}attn_{name}.weight"] = std(1.4 * D ** -0.5, width, D)
            if c["bias"]:
                w[f"{b}attn_{name}.bias"] = std(0.5, width)
        if c["norms"]:
            for name in "qk":
                w[f"{b}attn_{name}_norm.weight"] = around(1.4, c["head_dim"])
        w[b + "attn_output.weight"] = std(0.4 * q ** -0.5, D, q)
        w[b + "ffn_norm.weight"] = around(1, D)
        stack, end = ((), "") if c["experts"] is None else ((c["experts"][0],), "_exps")
        if c["experts"]:
            w[b + "ffn_gate_inp.weight"] = std(2 * D ** -0.5, c["experts"][0], D)
        for name in ("gate", "up"):
            w[f"{b}ffn_{name}{end}.weight"] = std(1.5 * D ** -0.5, *stack, f, D)
        w[f"{b}ffn_down{end}.weight"] = std(0.7 * f ** -0.5, *stack, D, f)
    return {n: x if stored_as_f32(n, x) else bf16(x) for n, x in w.items()}


def bf16(x):
    return quants.dequantize(quants.quantize(x, GGMLQuantizationType.BF16), GGMLQuantizationType.BF16)


def write_model(path, arch, c, w, vocab):
    g = GGUFWriter(path, arch)
    g.add_name(f"{arch}-tiny (random weights)")
    u32, f32 = (lambda k, x: g.add_uint32(f"{arch}.{k}", x)), (lambda k, x: g.add_float32(f"{arch}.{k}", x))
    u32("block_count", LAYERS)
    u32("context_length", 1024)
    u32("embedding_length", D)
    u32("feed_forward_length", c["ff"])
    u32("attention.head_count", c["heads"])
    u32("attention.head_count_kv", c["kv"])
    u32("attention.key_length", c["head_dim"])
    u32("attention.value_length", c["head_dim"])
    f32("attention.layer_norm_rms_epsilon", c["eps"])
    f32("rope.freq_base", c["base"])
    if c["experts"]:
        u32("expert_count", c["experts"][0])
        u32("expert_used_count", c["experts"][1])
        u32("expert_feed_forward_length", c["ff"])
    if c["block"]:
        g.add_uint32("diffusion.canvas_length", c["block"])
    g.add_bool("diffusion.shift_logits", c["shifted"])
    g.add_tokenizer_model(vocab["model"])
    g.add_tokenizer_pre(vocab["pre"])
    g.add_token_list(vocab["tokens"])
    g.add_token_types(vocab["types"])
    g.add_token_merges(vocab["merges"])
    g.add_eos_token_id(vocab["eos"])
    g.add_pad_token_id(vocab["pad"])
    g.add_mask_token_id(MASK)
    g.add_add_bos_token(False)
    finish_model(g, w, GGMLQuantizationType.BF16)


# --- the forward pass

def rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def rope(x, base):
    """x [T, heads, d]: pairs (i, i + d/2)."""
    d = x.shape[-1]
    angle = np.arange(len(x))[:, None] * base ** (-2 * np.arange(d // 2) / d)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :d // 2], x[..., d // 2:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def block_mask(n, block):
    """[n, n]: row i sees column j."""
    b = np.arange(n) // (block or n)
    return b[None, :] <= b[:, None]


def forward(c, w, ids):
    """Logits [T, V] in the order of the rows, not shifted, and taps [T, ...]."""
    w = {n: x.astype(np.float64) for n, x in w.items()}
    ids, taps = np.asarray(ids), {}
    visible = block_mask(len(ids), c["block"])
    x = w["token_embd.weight"][ids]
    for i in range(LAYERS):
        at = lambda n: w[f"blk.{i}.{n}"]
        tap = lambda n, x: taps.__setitem__(f"{n}-{i}", x.reshape(len(ids), -1))
        h = rms(x, at("attn_norm.weight"), c["eps"])
        tap("attn_norm", h)
        heads = []
        for name, n in (("q", c["heads"]), ("k", c["kv"]), ("v", c["kv"])):
            y = h @ at(f"attn_{name}.weight").T + (at(f"attn_{name}.bias") if c["bias"] else 0)
            heads.append(y.reshape(len(ids), n, c["head_dim"]))
        q, k, v = heads
        tap("Vcur", v)
        if c["norms"]:
            q, k = rms(q, at("attn_q_norm.weight"), c["eps"]), rms(k, at("attn_k_norm.weight"), c["eps"])
        q, k = rope(q, c["base"]), rope(k, c["base"])
        tap("Qcur", q)
        tap("Kcur", k)
        share = c["heads"] // c["kv"]
        k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
        scores = np.einsum("ihd,jhd->hij", q, k) * c["head_dim"] ** -0.5
        p = softmax(np.where(visible, scores, -np.inf))
        o = np.einsum("hij,jhd->ihd", p, v).reshape(len(ids), -1)
        tap("kqv_out", o)
        x = x + o @ at("attn_output.weight").T
        tap("ffn_inp", x)
        h = rms(x, at("ffn_norm.weight"), c["eps"])
        tap("ffn_norm", h)
        if c["experts"]:
            probs = softmax(h @ at("ffn_gate_inp.weight").T)
            best = np.argsort(-probs, -1, kind="stable")[:, :c["experts"][1]]
            share = np.take_along_axis(probs, best, -1)
            share /= share.sum(-1, keepdims=True)
            gate, up, down = (at(f"ffn_{n}_exps.weight")[best] for n in ("gate", "up", "down"))      # [T, k, ., .]
            y = silu(np.einsum("tkfn,tn->tkf", gate, h)) * np.einsum("tkfn,tn->tkf", up, h)
            y = np.einsum("tk,tkn->tn", share, np.einsum("tknf,tkf->tkn", down, y))
            tap("ffn_moe_topk", best.astype(np.int32))
            tap("ffn_moe_weights", share)
            tap("ffn_moe_out", y)
        else:
            y = silu(h @ at("ffn_gate.weight").T) * (h @ at("ffn_up.weight").T) @ at("ffn_down.weight").T
            tap("ffn_out", y)
        x = x + y
        tap("l_out", x)
    x = rms(x, w["output_norm.weight"], c["eps"])
    taps["result_norm"] = x
    return x @ w["output.weight"].T, taps


def margin(values):
    """Distance of the largest from the second in each row."""
    top = np.sort(values, -1)[..., -2:]
    return float((top[..., 1] - top[..., 0]).min()) if values.size else np.inf


# --- samplers

def penalized(row, others, config, place):
    """Logits [V] of a place of the answer: `others`, the tokens that stand elsewhere, are worth less, what is banned nothing."""
    row, seen = row.copy(), np.unique(others[others != MASK])
    repetition = config.get("repetition_penalty", 1)
    row[seen] = np.where(row[seen] < 0, row[seen] * repetition, row[seen] / repetition)
    row[seen] -= config.get("presence_penalty", 0)
    row[config.get("ban", [])] = -np.inf
    if 0 <= place < config.get("min_tokens", 0):
        row[config["eos"]] = -np.inf
    return row


def banning(c, w, prompt, length, config):
    """As generate; `ban` of the tokens that would come are banned. None where the penalties change nothing else."""
    answer = lambda **change: generate(c, w, prompt, length, config | change)[0]["final"][len(prompt):]
    free = answer(ban=[])
    config["ban"] = sorted({int(t) for t in free[:config["ban"]]})
    out, least = generate(c, w, prompt, length, config)
    assert not np.isin(config["ban"], out["final"][len(prompt):]).any()
    without = answer(ban=[], repetition_penalty=1, presence_penalty=0)
    return out, least if (free != without).any() else 0


def guarded(c, w, prompt, length, config):
    """As generate, with an end that would come at once and, where it may, does come."""
    free = generate(c, w, prompt, length, config | {"min_tokens": 0, "eos": []})[0]["final"][len(prompt):]
    config["eos"] = sorted({int(t) for t in free})
    out, least = generate(c, w, prompt, length, config)
    end = np.isin(out["final"][len(prompt):], config["eos"])
    return out, least if config["min_tokens"] <= end.argmax() < length - 2 and end.any() else 0


def generate(c, w, prompt, length, config):
    """Rows of a trajectory, and its least margin."""
    # without blocks the canvas is one
    block, rows, least = c["block"] or length, [], [np.inf]
    x = np.array(prompt + [MASK] * length)
    first = len(prompt) // block * block if c["block"] else len(prompt)
    assert (len(x) - first) % block == 0

    def predict(x):
        logits, _ = forward(c, w, x)
        if c["shifted"]:
            logits = np.concatenate([logits[:1], logits[:-1]])
        return logits

    def no_mask(logits):
        return np.delete(logits, MASK, -1)

    for start in range(first, len(x), block):
        if c["shifted"] and start >= len(prompt):
            # The pass over what comes before also predicts the first token.
            last, _ = forward(c, w, x[:start])
            last = no_mask(penalized(last[-1], x[:start], config, start - len(prompt)))
            x[start] = last.argmax()
            least.append(margin(last))
        small = config["block_length"] or block
        for begin in range(start, start + block, small):
            place = np.arange(begin, begin + small)
            place, step = place[place >= len(prompt)], 0
            while (x[place] == MASK).any():
                logits = predict(x)
                argmax = logits.argmax(-1)
                least.append(margin(logits))
                logits = np.array([penalized(row, np.delete(x, i), config, i - len(prompt))
                                   for i, row in enumerate(logits)])
                open_ = place[x[place] == MASK]
                allowed = no_mask(logits)
                token = allowed.argmax(-1)
                least.append(margin(allowed[open_]))
                p = softmax(logits)
                confidence = np.zeros(len(x))
                confidence[open_] = p[open_, token[open_]]
                order = open_[np.argsort(-confidence[open_], kind="stable")]
                falling = confidence[order]
                # small / steps a step, the first ones one more
                steps = config["steps"] * small // block or small
                k = small // steps + (step < small % steps)
                if config["sampler"] == "threshold":
                    least.append(np.abs(falling - config["threshold"]).min())
                    k = max(k, int((falling > config["threshold"]).sum()))
                if config["sampler"] == "dynamic-threshold":
                    doubt = (np.arange(len(falling)) + 2) * (1 - falling)
                    least.append(np.abs(doubt - config["factor"]).min())
                    k = max(k, int((doubt < config["factor"]).sum()))
                if k < len(falling):
                    least.append(falling[k - 1] - falling[k])
                y, revealed = x.copy(), np.zeros(len(x), np.uint8)
                revealed[order[:k]] = 1
                y[order[:k]] = token[order[:k]]
                rows.append(dict(x_in=x.copy(), x_out=y, argmax=argmax, confidence=confidence,
                                 revealed=revealed, k=int(revealed.sum()),
                                 n_masked=int((x[start:start + block] == MASK).sum())))
                x, step = y.copy(), step + 1
                decided = np.isin(x[len(prompt):], config.get("eos", []) + [MASK])
                if decided.any() and x[len(prompt) + decided.argmax()] != MASK:
                    x[len(prompt) + decided.argmax() + 1:] = c["pad"]
                    return trajectory(rows, x[:start + block], prompt), min(least)
    return trajectory(rows, x, prompt), min(least)


def trajectory(rows, final, prompt):
    names = rows[0].keys()
    return {n: np.array([r[n] for r in rows]) for n in names} | {"final": final, "prompt_ids": np.array(prompt)}


# --- cases

def forward_case(c, w, r):
    block = c["block"] or 8
    ids = r.integers(20, 500, 5 * block // 2 + 1)
    ids[-block:][::2] = MASK
    logits, taps = forward(c, w, ids)
    keep = ["attn_norm-0", "Qcur-0", "Kcur-0", "Vcur-1", "kqv_out-0", "ffn_inp-1", "ffn_out-0", "ffn_moe_topk-0",
            "ffn_moe_weights-1", "ffn_moe_out-0", "l_out-0", "l_out-1", "result_norm"]
    return {"ids": ids, "logits": logits} | {n: taps[n] for n in keep if n in taps}, margin(logits)


def cached_case(c, w, r, n_prompt, chunks):
    total = (n_prompt // c["block"] + 1) * c["block"]
    cached = n_prompt // c["block"] * c["block"]
    assert sum(chunks) == cached
    ids = r.integers(20, 500, total)
    ids[n_prompt + 1:] = MASK
    logits, taps = forward(c, w, ids)
    visible = block_mask(total, c["block"]).astype(np.uint8)
    out = {"prompt_ids": ids[:n_prompt], "canvas_ids": ids[n_prompt:], "chunk_lengths": np.array(chunks),
           "logits": logits[n_prompt:]}
    at = 0
    passes = [("enc" if i == 0 else f"enc{i + 1}", n) for i, n in enumerate(chunks)] + [("dec", total - cached)]
    for name, n in passes:
        rows = slice(at, at + n)
        for tap in ("Kcur-1", "kqv_out-0", "l_out-1"):
            out[f"{name}/{tap}"] = taps[tap][rows]
        out[f"{name}/kq_visible-0"] = visible[rows, :at + n]
        at += n
    return out, margin(logits[n_prompt:])


PENALTIES = dict(repetition_penalty=1.4, presence_penalty=0.5, ban=6)
THRESHOLD = dict(sampler="threshold", steps=0, block_length=0, threshold=0.35)
CASES = {
    "sdar": [("forward", forward_case), ("cached", cached_case, 13, [8, 4]),
             ("sampler-threshold", generate, 6, 14, THRESHOLD),
             ("sampler-low-confidence", generate, 9, 11, dict(sampler="low-confidence", steps=2, block_length=0)),
             ("sampler-threshold.min-tokens", guarded, 7, 17, THRESHOLD | dict(min_tokens=7))],
    "sdar-moe": [("forward", forward_case), ("cached", cached_case, 16, [16]),
                 ("sampler-threshold", generate, 5, 19, THRESHOLD | dict(threshold=0.7))],
    "fast-dllm": [("forward", forward_case), ("cached", cached_case, 21, [16]),
                  ("sampler-threshold", generate, 16, 32, THRESHOLD | dict(block_length=4)),
                  ("sampler-dynamic-threshold", generate, 11, 21,
                   dict(sampler="dynamic-threshold", steps=0, block_length=8, factor=1.5)),
                  ("sampler-threshold.penalties", banning, 16, 32, THRESHOLD | PENALTIES | dict(block_length=4)),
                  ("sampler-threshold.min-tokens", guarded, 16, 48, THRESHOLD | dict(block_length=4, min_tokens=18))],
    "a2d-qwen3": [("forward", forward_case),
                  ("sampler-low-confidence", generate, 9, 16, dict(sampler="low-confidence", steps=8, block_length=8)),
                  ("sampler-threshold", generate, 5, 12, THRESHOLD | dict(threshold=0.8)),
                  ("sampler-low-confidence.penalties", banning, 9, 16,
                   dict(sampler="low-confidence", steps=8, block_length=8) | PENALTIES),
                  ("sampler-low-confidence.min-tokens", guarded, 9, 16,
                   dict(sampler="low-confidence", steps=16, block_length=16, min_tokens=6))],
}


def make(c, w, make_case, arguments):
    """The first of a row of seeds whose decisions are clear."""
    for seed in range(200):
        r = np.random.default_rng(seed)
        if make_case in (generate, banning, guarded):
            n, length, config = arguments
            config, prompt = dict(config), [int(x) for x in r.integers(20, 500, n)]
            out, least = make_case(c, w, prompt, length, config)
            metadata = {"config": json.dumps(config | {"gen_length": length})}
        else:
            out, least = make_case(c, w, r, *arguments)
            metadata = {}
        if least > MARGIN:
            return out, metadata, least
    raise SystemExit("no seed has clear decisions")


# --- transformers

def check(arch, c, w, ids):
    """Largest difference of the logits from those of transformers in float64, whose casts to float32 are taken out."""
    import torch
    import transformers
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    kind = {"sdar": "Qwen3", "sdar-moe": "Qwen3Moe", "fast-dllm": "Qwen2", "a2d-qwen3": "Qwen3"}[arch]
    sizes = dict(vocab_size=V, hidden_size=D, num_hidden_layers=LAYERS, num_attention_heads=c["heads"],
                 intermediate_size=c["ff"], num_key_value_heads=c["kv"], head_dim=c["head_dim"], rms_norm_eps=c["eps"],
                 rope_parameters={"rope_type": "default", "rope_theta": c["base"]}, tie_word_embeddings=False,
                 max_position_embeddings=1024, attn_implementation="eager", experts_implementation="eager")
    if c["experts"]:
        sizes |= dict(num_experts=c["experts"][0], num_experts_per_tok=c["experts"][1], moe_intermediate_size=c["ff"],
                      norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
    model = getattr(transformers, kind + "ForCausalLM")(getattr(transformers, kind + "Config")(**sizes)).double().eval()
    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
             "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate"}
    top = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
           "output.weight": "lm_head.weight"}
    state = {}
    for name, x in w.items():
        x = torch.tensor(x.astype(np.float64))
        if name in top:
            state[top[name]] = x
            continue
        _, i, part, end = name.split(".")
        if not part.endswith("_exps"):
            state[f"model.layers.{i}.{names[part]}.{end}"] = x
    for i in range(LAYERS if c["experts"] else 0):
        stack = lambda n: torch.tensor(w[f"blk.{i}.ffn_{n}_exps.weight"].astype(np.float64))
        gate, up, down = stack("gate"), stack("up"), stack("down")
        mlp = f"model.layers.{i}.mlp.experts"
        if f"{mlp}.gate_up_proj" in model.state_dict():
            state[f"{mlp}.gate_up_proj"], state[f"{mlp}.down_proj"] = torch.cat([gate, up], 1), down
        else:
            for e in range(len(gate)):
                for n, x in (("gate", gate), ("up", up), ("down", down)):
                    state[f"{mlp}.{e}.{n}_proj.weight"] = x[e]
    model.load_state_dict(state)
    seen = torch.tensor(block_mask(len(ids), c["block"]))
    mask = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)[None, None]
    with torch.no_grad():
        theirs = model(torch.tensor(np.asarray(ids))[None].long(), attention_mask=mask).logits[0].numpy()
    assert theirs.dtype == np.float64
    ours, _ = forward(c, w, ids)
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    return np.abs(ours - theirs).max() / np.abs(ours).max(), versions


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("testdata", type=Path)
    ap.add_argument("--check", action="store_true", help="compare with transformers and write nothing")
    args = ap.parse_args()
    root = args.testdata / "block-diffusion"
    vocab = json.loads((args.testdata / "tokenizer" / "dream-tiny.vocab.json").read_text())
    for seed, (arch, c) in enumerate(MODELS.items()):
        w, c["pad"] = weights(c, seed + 40), vocab["pad"]
        if args.check:
            ids = np.random.default_rng(7).integers(20, 512, 3 * (c["block"] or 8) + 5)
            print(arch, *check(arch, c, w, ids))
            continue
        file = f"{arch}-tiny.BF16.gguf"
        for folder in ("models", "cases"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        write_model(root / "models" / file, arch, c, w, vocab)
        for name, make_case, *arguments in CASES[arch]:
            out, metadata, least = make(c, w, make_case, arguments)
            metadata |= {"case": name, "model": file, "reference": f"{Path(__file__).name}, float64"}
            save(root / "cases" / f"{arch}-tiny.BF16.{name}.safetensors", out, metadata)
            steps = f", {len(out['k'])} steps reveal {out['k'].tolist()}" if "k" in out else ""
            print(f"{file} {name}: least margin {least:.1e}{steps}")


if __name__ == "__main__":
    main()
