"""Tiny models of LLaDA2 with random weights and what they must compute, in float64 NumPy: testdata/llada2. One is of 2.0 and 2.1,
one of 2.2, whose experts are chosen for a block of tokens together.

    pip install numpy==2.4.6 gguf==0.19.0 && python scripts/make_llada2_goldens.py

Written from "LLaDA2.0: Scaling Up Diffusion Language Models to 100B" and the public modeling code (modeling_llada2_moe.py;
the router is that of DeepSeek-V3, section 2.1.2; that of 2.2 is read in SGLang's pull request 31768, FluxServe, minnow and
diffuse-cpp). Metadata and tensors have the names of llama.cpp's converter for
`bailingmoe2`, whose layers these are. The router is written twice, in two ways, and both must agree on every token. The
script refuses to write goldens in which a rule makes no difference: it breaks each rule once and looks at the logits.
Two runs write the same bytes.

With --check (and llama-cpp-python 0.3.36) the forward pass is compared with llama.cpp's `bailingmoe2`, which has the same
layers under a causal or a full mask.
"""
import argparse
import ctypes
import json
import tempfile
from pathlib import Path

import gguf
import numpy as np

import golden_files

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "testdata/llada2"

LAYERS, DENSE, WIDTH, HEADS, KV_HEADS, HEAD, ROTATED = 3, 1, 64, 4, 2, 32, 16
D_FF, D_EXPERT, EXPERTS, TOP, GROUPS, KEPT, SCALE = 96, 16, 32, 4, 8, 4, 2.5
BLOCK, VOCAB, EPS, BASE, MASK, ROLE_END = 8, 512, 1e-5, 600000.0, 511, 506
SEED = 7
# Experts that a block of 2.2 can use, 0 in models before, and tokens that its file names as commands.
CAPACITY, DELETE, SPLIT = 0, None, None


def is_2_2():
    """What is otherwise in a model of 2.2: few experts for a block, narrow ones, and slower rotation."""
    global CAPACITY, D_EXPERT, BASE, SEED
    CAPACITY, D_EXPERT, BASE, SEED = 7, 8, 3e6, 22


def model():
    return "llada2.2-tiny.BF16" if CAPACITY else "llada2-tiny.BF16"



def exact(x):
    """Rounded so that bf16 and f16 hold it: eight bits, nothing below 2^-14."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    x = bits.view(np.float32)
    return np.where(np.abs(x) < 2.0**-14, np.float32(0), x)


def make_weights():
    rng = np.random.default_rng(SEED)
    def matrix(gain, *shape):
        return exact(rng.standard_normal(shape) * gain / np.sqrt(shape[-1]))
    def around(x, n):
        return (x * rng.uniform(0.6, 1.4, n)).astype(np.float32)
    w = {"token_embd": exact(rng.standard_normal((VOCAB, WIDTH))), "output_norm": around(3.0, WIDTH),
         "output": matrix(1.0, VOCAB, WIDTH)}
    for i in range(LAYERS):
        b = f"blk.{i}."
        w[b + "attn_norm"] = around(1.0, WIDTH)
        w[b + "attn_qkv"] = matrix(1.4, (HEADS + 2 * KV_HEADS) * HEAD, WIDTH)
        w[b + "attn_q_norm"], w[b + "attn_k_norm"] = around(1.4, HEAD), around(1.4, HEAD)
        w[b + "attn_output"] = matrix(0.6, WIDTH, HEADS * HEAD)
        w[b + "ffn_norm"] = around(1.0, WIDTH)
        if i < DENSE:
            w[b + "ffn_gate"], w[b + "ffn_up"] = matrix(1.5, D_FF, WIDTH), matrix(1.5, D_FF, WIDTH)
            w[b + "ffn_down"] = matrix(0.7, WIDTH, D_FF)
            continue
        w[b + "ffn_gate_inp"] = (rng.standard_normal((EXPERTS, WIDTH)) * 1.5 / np.sqrt(WIDTH)).astype(np.float32)
        w[b + "exp_probs_b.bias"] = rng.uniform(-0.25, 0.25, EXPERTS).astype(np.float32)
        for kind, shape in (("exps", (EXPERTS,)), ("shexp", ())):
            w[b + f"ffn_gate_{kind}"] = matrix(1.5, *shape, D_EXPERT, WIDTH)
            w[b + f"ffn_up_{kind}"] = matrix(1.5, *shape, D_EXPERT, WIDTH)
            w[b + f"ffn_down_{kind}"] = matrix(0.7, *shape, WIDTH, D_EXPERT)
    return w


def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def rotate(x, broken):
    """Positions from 0; the first channels of each head turn in pairs (i, i + n/2)."""
    n = HEAD if broken == "whole heads rotate" else ROTATED
    angle = np.arange(len(x))[:, None] * BASE ** (-np.arange(0, n, 2) / n)[None]  # [T, n/2]
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    out = x.copy()
    a, b = (slice(0, n, 2), slice(1, n, 2)) if broken == "pairs of neighbours" else (slice(0, n // 2), slice(n // 2, n))
    out[..., a], out[..., b] = x[..., a] * cos - x[..., b] * sin, x[..., b] * cos + x[..., a] * sin
    return out


def mask(n, broken):
    """Which keys a row sees: all blocks up to its own."""
    row, key = np.arange(n)[:, None], np.arange(n)[None]
    if broken == "full mask":
        return np.ones((n, n), bool)
    if broken == "causal mask":
        return key <= row
    if broken == "blocks of twice the length":
        return key // (2 * BLOCK) <= row // (2 * BLOCK)
    return key // BLOCK <= row // BLOCK


def route_by_tensors(p, bias, broken=None):
    """As the public code has it: group scores by the two largest, a mask over groups, the largest of what is left."""
    choice = p if broken == "no bias" else p + bias
    if CAPACITY and broken not in ("no capacity", "groups alone"):
        of_block = block_worth(p if broken == "no bias for blocks" else choice, broken)
        allowed = np.argsort(-of_block, -1, kind="stable")[:, :CAPACITY]
        open_ = np.zeros((len(of_block), EXPERTS), bool)
        np.put_along_axis(open_, allowed, True, -1)
        open_ = open_[(np.arange(len(p)) + shift(broken)) // block_of(broken)]
        if broken == "groups, too":
            open_ &= by_groups(choice, broken)
    else:
        open_ = by_groups(choice, broken)
    masked = np.where(open_, choice, -np.inf)
    ids = np.argsort(-masked, -1, kind="stable")[:, :TOP]
    w = np.take_along_axis(choice if broken == "bias in the weights" else p, ids, -1)
    if broken != "not normalised":
        w = w / (w.sum(-1, keepdims=True) + 1e-20)
    return ids, w if broken == "not scaled" else w * SCALE


def shift(broken):
    """Positions by which the grid of blocks is off."""
    return 3 if broken == "a grid that begins elsewhere" else 0


def block_of(broken):
    return {"blocks of twice the length for experts": 2 * BLOCK, "every token by itself": 1}.get(broken, BLOCK)


def block_worth(choice, broken):
    """What each expert is worth to each block, [blocks, experts]: rows that are missing at the ends are worth nothing."""
    n, before = block_of(broken), shift(broken)
    padded = np.pad(choice, ((before, -(len(choice) + before) % n), (0, 0)), constant_values=-np.inf)
    blocks = padded.reshape(-1, n, EXPERTS)
    if broken == "sum instead of maximum":
        return np.where(np.isfinite(blocks), blocks, 0).sum(1)
    if broken == "the first token decides":
        return blocks[:, 0]
    return blocks.max(1)


def by_groups(choice, broken):
    """The experts of the groups that a token uses, [T, experts]."""
    groups = choice.reshape(len(choice), GROUPS, -1)
    top = np.sort(groups, -1)[..., -(1 if broken == "groups by their best" else 2):].sum(-1)  # [T, groups]
    kept = np.argsort(-top, -1, kind="stable")[:, :KEPT]
    open_ = np.zeros(top.shape, bool)
    np.put_along_axis(open_, kept, True, -1)
    if broken in ("no groups", "no capacity"):
        open_[:] = True
    return np.repeat(open_, EXPERTS // GROUPS, -1)


def route_by_hand(p, bias):
    """The rule as a person would follow it, one token at a time."""
    all_ids, all_weights = [], []
    size = EXPERTS // GROUPS
    for at, scores in enumerate(p):
        want = [scores[e] + bias[e] for e in range(EXPERTS)]
        if CAPACITY:
            # An expert is out when so many others are better for the block.
            mates = [t for t in range(len(p)) if t // BLOCK == at // BLOCK]
            keenest = [max(p[t][e] for t in mates) + bias[e] for e in range(EXPERTS)]
            better = [sum((keenest[o], e) > (keenest[e], o) for o in range(EXPERTS)) for e in range(EXPERTS)]
            free = [e for e in range(EXPERTS) if better[e] < CAPACITY]
        else:
            worth = []
            for g in range(GROUPS):
                first, second = sorted(want[g * size:(g + 1) * size], reverse=True)[:2]
                worth.append((-(first + second), g))
            used = {g for _, g in sorted(worth)[:KEPT]}
            free = [e for e in range(EXPERTS) if e // size in used]
        ranked = sorted((-want[e], e) for e in free)
        ids = [e for _, e in ranked[:TOP]]
        total = sum(scores[e] for e in ids)
        all_ids.append(ids)
        all_weights.append([scores[e] / total * SCALE for e in ids])
    return np.array(all_ids), np.array(all_weights)


def margins(p, bias):
    """How close the choices of a layer are: groups or experts of a block, and experts."""
    choice = p + bias
    if CAPACITY:
        worth = block_worth(choice, None)
        order = np.sort(worth, -1)
        threshold = order[:, -CAPACITY][np.arange(len(p)) // BLOCK, None]
        allowed = worth[np.arange(len(p)) // BLOCK] >= threshold
        left = np.sort(np.where(allowed, choice, -9), -1)
        return min((order[:, -CAPACITY] - order[:, -CAPACITY - 1]).min(), np.diff(left[:, -TOP - 1:]).min())
    top = np.sort(np.sort(choice.reshape(len(p), GROUPS, -1), -1)[..., -2:].sum(-1), -1)
    ids, _ = route_by_tensors(p, bias)
    size = EXPERTS // GROUPS
    used = np.argsort(-np.sort(choice.reshape(len(p), GROUPS, -1), -1)[..., -2:].sum(-1), -1)[:, :KEPT]
    left = [sorted((c[e] for e in range(EXPERTS) if e // size in u), reverse=True) for c, u in zip(choice, used)]
    experts = min(min(-np.diff(x[:TOP + 1])) for x in left)
    return min((top[:, -KEPT] - top[:, -KEPT - 1]).min(), experts)


def forward(w, ids, broken=None, taps=None):
    """Logits of all rows, [T, V]."""
    w = {k: v.astype(np.float64) for k, v in w.items()}
    tap = (lambda name, x: taps.__setitem__(name, x)) if taps is not None else (lambda name, x: None)
    x, seen = w["token_embd"][ids], mask(len(ids), broken)
    for i in range(LAYERS):
        b = f"blk.{i}."
        h = rms(x, w[b + "attn_norm"])
        qkv = (h @ w[b + "attn_qkv"].T).reshape(len(ids), -1, HEAD)
        q, k, v = np.split(qkv, [HEADS, HEADS + KV_HEADS], 1)
        if broken != "no norms over heads":
            q, k = rms(q, w[b + "attn_q_norm"]), rms(k, w[b + "attn_k_norm"])
        q, k = rotate(q, broken), rotate(k, broken)
        tap(f"Qcur-{i}", q), tap(f"Kcur-{i}", k)
        k, v = (np.repeat(y, HEADS // KV_HEADS, 1) for y in (k, v))
        s = np.where(seen[None], np.einsum("thd,shd->hts", q, k) / np.sqrt(HEAD), -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        o = np.einsum("hts,shd->thd", s / s.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        tap(f"kqv_out-{i}", o)
        x = x + o @ w[b + "attn_output"].T
        tap(f"ffn_inp-{i}", x)
        h = rms(x, w[b + "ffn_norm"])
        if i < DENSE:
            y = (silu(h @ w[b + "ffn_gate"].T) * (h @ w[b + "ffn_up"].T)) @ w[b + "ffn_down"].T
        else:
            logits, bias = h @ w[b + "ffn_gate_inp"].T, w[b + "exp_probs_b.bias"]
            p = np.exp(logits - logits.max(-1, keepdims=True)) if broken == "soft-max" else sigmoid(logits)
            p = p / p.sum(-1, keepdims=True) if broken == "soft-max" else p
            chosen, weights = route_by_tensors(p, bias, broken)
            if broken is None:
                again, other = route_by_hand(p, bias)
                assert (chosen == again).all() and np.abs(weights - other).max() < 1e-14
                if taps is not None:
                    taps["margin"] = min(taps.get("margin", 1.0), margins(p, bias))
            gate, up, down = (w[b + f"ffn_{n}_exps"][chosen] for n in ("gate", "up", "down"))  # [T, k, ...]
            each = silu(np.einsum("tkfn,tn->tkf", gate, h)) * np.einsum("tkfn,tn->tkf", up, h)
            routed = (np.einsum("tknf,tkf->tkn", down, each) * weights[..., None]).sum(1)
            shared = (silu(h @ w[b + "ffn_gate_shexp"].T) * (h @ w[b + "ffn_up_shexp"].T)) @ w[b + "ffn_down_shexp"].T
            y = routed if broken == "no shared expert" else routed + shared
            for name, t in (("logits", logits), ("probs", p), ("topk", chosen), ("weights", weights), ("out", routed)):
                tap(f"ffn_moe_{name}-{i}", t)
            tap(f"ffn_shexp-{i}", shared)
        x = x + y
        tap(f"l_out-{i}", x)
    x = rms(x, w["output_norm"])
    tap("result_norm", x)
    return x @ w["output"].T


def rules():
    shared = ["full mask", "causal mask", "blocks of twice the length", "whole heads rotate", "soft-max", "no bias",
              "bias in the weights", "not normalised", "not scaled", "no shared expert"]
    if CAPACITY:
        return shared + ["sum instead of maximum", "no capacity", "no bias for blocks", "a grid that begins elsewhere",
                         "blocks of twice the length for experts", "groups, too", "groups alone", "the first token decides"]
    return shared + ["pairs of neighbours", "no norms over heads", "no groups", "groups by their best"]


def distance(a, b):
    """1 - cos of the two."""
    return 1 - (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())


def write_model(w, path, arch="llada2", kind=gguf.GGMLQuantizationType.BF16):
    g = gguf.GGUFWriter(path, arch)
    g.add_name(f"LLaDA2{'.2' if CAPACITY else ''} tiny (random weights)")
    g.add_vocab_size(VOCAB), g.add_context_length(256), g.add_embedding_length(WIDTH), g.add_block_count(LAYERS)
    g.add_head_count(HEADS), g.add_head_count_kv(KV_HEADS), g.add_key_length(HEAD), g.add_value_length(HEAD)
    g.add_rope_dimension_count(ROTATED), g.add_rope_freq_base(BASE), g.add_layer_norm_rms_eps(EPS)
    g.add_causal_attention(False), g.add_feed_forward_length(D_FF), g.add_leading_dense_block_count(DENSE)
    g.add_expert_count(EXPERTS), g.add_expert_used_count(TOP), g.add_expert_feed_forward_length(D_EXPERT)
    g.add_expert_shared_count(1), g.add_expert_shared_feed_forward_length(D_EXPERT)
    g.add_expert_group_count(GROUPS), g.add_expert_group_used_count(KEPT)
    g.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    g.add_expert_weights_norm(True), g.add_expert_weights_scale(SCALE)
    if CAPACITY:
        # Published configurations have the groups, too.
        g.add_uint32(f"{arch}.expert_capacity", CAPACITY), g.add_uint32(f"{arch}.expert_block_length", BLOCK)
        g.add_uint32("diffusion.delete_token_id", DELETE), g.add_uint32("diffusion.split_token_id", SPLIT)
    g.add_bool("diffusion.shift_logits", False), g.add_uint32("diffusion.canvas_length", BLOCK)
    v = json.loads((ROOT / "testdata/tokenizer/llada-tiny.vocab.json").read_text())
    # The marker of a turn's end, in place of the last text token and of the merge that makes it.
    merges = [m for m in v["merges"] if m.replace(" ", "") != v["tokens"][ROLE_END]]
    v["tokens"][ROLE_END], v["types"][ROLE_END] = "<|role_end|>", 3
    g.add_tokenizer_model("gpt2"), g.add_tokenizer_pre("bailingmoe2")
    g.add_token_list(v["tokens"]), g.add_token_types(v["types"]), g.add_token_merges(merges)
    g.add_bos_token_id(v["bos"]), g.add_eos_token_id(v["eos"]), g.add_pad_token_id(v["pad"]), g.add_mask_token_id(MASK)
    g.add_add_bos_token(False)
    full = {name if name.endswith(".bias") else name + ".weight": x for name, x in w.items()}
    golden_files.finish_model(g, full, kind)


def save(name, tensors, metadata):
    path = OUT / "cases" / f"{model()}.{name}.safetensors"
    golden_files.save(path, tensors, {"case": name, "model": model() + ".gguf", **metadata}, sort_keys=True, separators=(",", ":"))


def penalized(logits, x, start, repetition_penalty=1, presence_penalty=0, ban=()):
    """Rows that predict x[start:]: tokens that stand at any other position are worth less (the repetition penalty as in
    transformers, the presence penalty as in llama.cpp), banned ones nothing.
    """
    out = logits.copy()
    for i, row in enumerate(out):
        others = np.delete(x, start + i)
        seen = np.unique(others[others != MASK])
        row[seen] = np.where(row[seen] < 0, row[seen] * repetition_penalty, row[seen] / repetition_penalty)
        row[seen] -= presence_penalty
        row[list(ban)] = -np.inf
    return out


def decode(w, prompt, gen_length, threshold, edit_threshold=None, post_steps=0, **penalties):
    """Block after block, greedy; the mask token is never revealed. Each step reveals the masks whose token has a higher
    probability than the threshold, the likeliest one always; with an edit threshold it also replaces tokens that are not
    of the prompt, and goes on when no mask is left, until nothing changes or `post_steps` steps have had no masks.
    As in SGLang's `JointThreshold` and dInfer, without its penalty. Returns the rows, one per step, and how close any
    decision was.
    """
    rows, closest = {k: [] for k in ("x_in", "x_out", "revealed", "confidence", "k")}, 1.0
    x = np.concatenate([prompt, np.full(gen_length, MASK)])
    start = len(prompt)
    while start < len(x):
        end, posts = start - start % BLOCK + BLOCK, 0
        while True:
            masked = x[start:end] == MASK
            if not masked.any():
                posts += 1
            logits = penalized(forward(w, x[:end])[start:end], x, start, **penalties)
            p = np.exp(logits - logits.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            p[:, MASK] = 0  # counted, never chosen
            best, two = p.argmax(-1), np.sort(p, -1)[:, -2:]
            chance = two[:, 1]
            change = masked & (chance > threshold)
            limits = [np.where(masked, np.abs(chance - threshold), 1)]
            if masked.any() and not change.any():
                change[np.where(masked, chance, -1).argmax()] = True
                order = np.sort(chance[masked])
                limits.append(np.diff(order[-2:]))
            if edit_threshold is not None:
                differs = ~masked & (best != x[start:end])
                change |= differs & (chance > edit_threshold)
                limits.append(np.where(differs, np.abs(chance - edit_threshold), 1))
            could_change = masked | (edit_threshold is not None)
            limits.append(np.where(could_change, (two[:, 1] - two[:, 0]) / two[:, 1], 1))
            closest = min([closest] + [m.min() for m in limits if m.size])
            out = np.where(change, best, x[start:end])
            confidence, revealed = np.zeros(len(x)), np.zeros(len(x), np.uint8)
            confidence[start:end], revealed[start:end] = np.where(could_change, chance, 0), change
            rows["x_in"].append(x.copy())
            x[start:end] = out
            left = (out == MASK).any()
            for k, v in (("x_out", x.copy()), ("revealed", revealed), ("confidence", confidence),
                         ("k", masked.sum() - (out == MASK).sum())):
                rows[k].append(v)
            if not left and (edit_threshold is None or not change.any() or posts >= post_steps):
                break
        start = end
    return {k: np.array(v) for k, v in rows.items()}, x, closest


def edit(w, prompt, gen_length, threshold, edit_threshold, post_steps, delete_token, split_token, happened=None):
    """Block after block, greedy, with deletions and insertions: SGLang's `JointThresholdInDel`, read in public code and written
    anew with lists, as rules for one token after the other; the mask token is never chosen. `happened` collects what did.
    """
    commands = (delete_token, split_token)
    rows, closest = {k: [] for k in ("x_in", "x_out", "revealed", "confidence", "k")}, 1.0
    x, happened = [int(t) for t in prompt] + [MASK] * gen_length, set() if happened is None else happened
    start = len(prompt)
    while start < len(x):
        end = start - start % BLOCK + BLOCK
        # [token, whether the mask or what became of it was there at the beginning]
        cells = [[MASK, True] for _ in range(start, end)]
        steps, posts, before, tried = 0, 0, [], {}
        while True:
            block = [token for token, _ in cells]
            assert block == x[start:end]
            logits = forward(w, np.array(x[:end]))[start:end]
            p = np.exp(logits - logits.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            p[:, MASK] = 0  # counted, never chosen
            ranking = np.argsort(-p, -1, kind="stable")
            best, chance = [int(r[0]) for r in ranking], p.max(-1)
            gap = np.sort(p, -1)
            limits = [((gap[:, -1] - gap[:, -2]) / gap[:, -1]).min()]
            masks = [i for i, t in enumerate(block) if t == MASK]
            old = [i for i in masks if cells[i][1]]
            steps += 1
            posts += not old
            if old:
                least = 1 + len(masks) - len(old)
                fill = [i for i in masks if chance[i] > threshold]
                limits += [abs(chance[i] - threshold) for i in masks]
                if len(fill) < least:
                    order = sorted(masks, key=lambda i: -chance[i])
                    fill = order[:least]
                    limits += [chance[a] - chance[b] for a, b in zip(order[least - 1:least], order[least:least + 1])]
            else:
                fill = masks
            last = steps > BLOCK + post_steps or (posts >= post_steps if post_steps else set(old) <= set(fill))
            if last:
                fill = masks
            write = {i: best[i] for i in fill}
            for i, t in enumerate(block):
                if t != MASK and best[i] != t:
                    limits.append(abs(chance[i] - edit_threshold))
                    if chance[i] > edit_threshold:
                        write[i] = best[i]
            if last:
                for i in write:
                    if write[i] in commands:
                        write[i] = next(int(t) for t in ranking[i] if t not in commands)
                        happened.add("scrubbed")
            elif block in before:
                changes = sorted((i for i in write if write[i] != block[i]), key=lambda i: chance[i])
                if changes:
                    limits += [chance[b] - chance[a] for a, b in zip(changes[:1], changes[1:2])]
                    write[changes[0]] = next(int(t) for t in ranking[changes[0]] if t not in tried.get(changes[0], []))
                    happened.add("another way")
            before.append(block)
            for i, t in write.items():
                tried.setdefault(i, []).append(t)
            new = []
            for i, cell in enumerate(cells):
                if write.get(i) == delete_token:
                    happened.add("deleted a token" if cell[0] != MASK else "deleted a mask")
                elif write.get(i) == split_token:
                    happened.add("inserted")
                    new += [[MASK, False], cell]
                else:
                    new.append([write.get(i, cell[0]), cell[1]])
            cells = (new + [[MASK, False]] * len(cells))[:len(cells)]
            closest = min(closest, *limits)
            y = x[:start] + [token for token, _ in cells] + x[end:]
            confidence = np.zeros(len(x))
            confidence[start:end] = chance
            left = sum(t == MASK for t in y[start:end])
            for k, v in (("x_in", x), ("x_out", y), ("revealed", np.not_equal(x, y)), ("confidence", confidence),
                         ("k", len(masks) - left)):
                rows[k].append(v)
            x = y
            if last or not write:
                happened.add("out of steps" if last else "settled")
                break
        start = end
    return {k: np.array(v) for k, v in rows.items()}, np.array(x), closest


def trajectory(w, name, rng, wanted, gen_length, commands=False, **settings):
    """A run that is what the case is about, in which f32 decides as f64."""
    global DELETE, SPLIT
    for _ in range(500):
        prompt = rng.integers(20, 506, BLOCK + 3)
        if commands:
            # Two tokens that come up when they are no commands.
            rows, *_ = edit(w, prompt, gen_length, **settings | {"delete_token": -1, "split_token": -2})
            ids, happened = np.setdiff1d(rows["x_out"][:, len(prompt):], [MASK]), set()
            both = (DELETE, SPLIT) if DELETE else rng.choice(ids, 2, False).tolist()
            settings["delete_token"], settings["split_token"] = both
            rows, final, closest = edit(w, prompt, gen_length, **settings, happened=happened)
            if closest > 5e-4 and wanted <= happened:
                break
            continue
        rows, final, closest = decode(w, prompt, gen_length, **settings)
        if closest > 5e-4 and wanted(rows):
            break
    else:
        raise SystemExit(f"{name}: no such run")
    if commands and CAPACITY:
        # The file says which they are.
        DELETE, SPLIT = settings.pop("delete_token"), settings.pop("split_token")
    edits = ((rows["x_in"] != MASK) & (rows["x_in"] != rows["x_out"])).sum(-1)
    print(f"{name}: {len(edits)} steps, edits {edits.tolist()}, revealed {rows['k'].tolist()}, closest {closest:.1e}")
    config = {"sampler": name.removeprefix("sampler-").rsplit(".")[0], "gen_length": gen_length, "steps": 0,
              "temperature": 0, **settings}
    kinds = {"confidence": np.float32, "revealed": np.uint8}
    tensors = {k: v.astype(kinds.get(k, np.int32)) for k, v in rows.items()}
    tensors |= {"prompt_ids": prompt.astype(np.int32), "final": final.astype(np.int32)}
    save(name, tensors, {"config": json.dumps(config), "reference": "NumPy, float64, block-causal mask"})


def sequence(rng, n, masked):
    ids = rng.integers(20, 506, n)
    ids[rng.permutation(np.arange(n // 2, n))[:masked]] = MASK
    return ids


def llama_cpp(path, ids, causal):
    """Logits of all rows, [T, V]."""
    import llama_cpp as cpp
    quiet = cpp.llama_log_callback(lambda level, text, data: None)
    cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    cpp.llama_backend_init()
    model = cpp.llama_model_load_from_file(str(path).encode(), cpp.llama_model_default_params())
    params = cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 256
    params.flash_attn_type = params.type_k = params.type_v = 0  # attention and cache in f32
    context = cpp.llama_init_from_model(model, params)
    cpp.llama_set_causal_attn(context, causal)
    batch = cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, id in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(id), i, 1, 1
        batch.seq_id[i][0] = 0
    assert cpp.llama_decode(context, batch) == 0
    rows = ctypes.cast(cpp.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    return np.ctypeslib.as_array(rows, (len(ids), VOCAB)).astype(np.float64)


def check():
    """That program takes the width of the model for that of all query heads, so there are fewer of them here."""
    global HEADS, KV_HEADS
    HEADS, KV_HEADS = WIDTH // HEAD, 1
    w = make_weights()
    ids = sequence(np.random.default_rng(SEED + 2), 45, 9)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_model(w, path, "bailingmoe2", gguf.GGMLQuantizationType.F32)
        for causal, rule in ((True, "causal mask"), (False, "full mask")):
            found, expected = llama_cpp(path, ids, causal), forward(w, ids, rule)
            apart, most = distance(found, expected), np.abs(found - expected).max()
            print(f"llama.cpp, {rule}: 1 - cos {apart:.1e}, at most {most:.1e} apart")
            assert apart < 1e-11 and (found.argmax(-1) == expected.argmax(-1)).all()


def forward_cases(w, rng, reference):
    for name, n, masked in (("forward", 3 * BLOCK, 7), ("long", 5 * BLOCK + 5, 9), ("two-token", 2, 1)):
        # Rounding in f32 must not flip a choice.
        for _ in range(200):
            ids, taps = sequence(rng, n, masked), {}
            logits = forward(w, ids, taps=taps)
            if taps["margin"] > (1e-4 if CAPACITY else 3e-4):
                break
        print(f"{name}: closest choice of a router {taps.pop('margin'):.1e}")
        if name == "forward":
            broken = {rule: distance(logits, forward(w, ids, rule)) for rule in rules()}
            for rule, d in broken.items():
                print(f"  {rule}: 1 - cos {d:.1e}")
            assert min(broken.values()) > 1e-4
        keep = taps if name == "forward" else {}
        if CAPACITY:
            keep = {k: v for k, v in keep.items() if k.startswith(("ffn_moe_", "l_out")) and "probs" not in k}
        tensors = {k: v.astype(np.int32 if "topk" in k else np.float32) for k, v in keep.items()}
        save(name, {"ids": ids.astype(np.int32), "logits": logits, **tensors}, reference)


def cached_case(w, rng, reference):
    """A prompt that ends inside a block, whole blocks of it read first, in two chunks; computed at once, as one sequence."""
    prompt, cached = 3 * BLOCK + 5, 3 * BLOCK
    ids, taps = rng.integers(20, 506, cached + BLOCK), {}
    ids[prompt + 1:] = MASK
    logits = forward(w, ids, taps=taps)
    tensors = {"prompt_ids": ids[:prompt], "canvas_ids": ids[prompt:], "chunk_lengths": np.array([2 * BLOCK, BLOCK]),
               "logits": logits[prompt:]}
    for name, rows in (("enc", slice(0, 2 * BLOCK)), ("enc2", slice(2 * BLOCK, cached)), ("dec", slice(cached, None))):
        tensors |= {f"{name}/ffn_moe_topk-2": taps["ffn_moe_topk-2"][rows], f"{name}/l_out-2": taps["l_out-2"][rows]}
    print(f"cached: closest choice of a router {taps['margin']:.1e}")
    save("cached", {k: v.astype(np.float32) if "l_out" in k else v for k, v in tensors.items()}, reference)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--check", action="store_true", help="compare with llama.cpp and write nothing")
    if ap.parse_args().check:
        return check()
    for folder in ("models", "cases"):
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    reference = {"reference": "NumPy, float64, block-causal mask"}
    w, rng = make_weights(), np.random.default_rng(SEED + 1)
    write_model(w, OUT / "models" / (model() + ".gguf"))
    forward_cases(w, rng, reference)

    def edited(rows):
        return (rows["x_in"] != MASK) & (rows["x_in"] != rows["x_out"])

    # The end of a prompt begins the first block: 5 positions, then blocks of 8.
    length = 5 + 2 * BLOCK
    threshold = lambda rows: (rows["k"] > 2).any() and (rows["k"] == 1).any()
    trajectory(w, "sampler-threshold", rng, threshold, length, threshold=0.35)
    joint = {"threshold": 0.35, "edit_threshold": 0.3}
    # Edits beside masks and after them, and a block that settles.
    trajectory(w, "sampler-joint-threshold", rng,
               lambda r: (edited(r).any(-1) & (r["k"] > 0)).any() and (edited(r).any(-1) & (r["k"] == 0)).any()
               and (~edited(r).any(-1) & (r["k"] == 0)).any(), length, **joint, post_steps=8)
    # Blocks that would go on: the steps for edits are used up.
    trajectory(w, "sampler-joint-threshold.budget", rng, lambda r: (edited(r).any(-1) & (r["k"] == 0)).sum() >= 2,
               length, threshold=0.1, edit_threshold=0.0, post_steps=2)
    # Penalties, of which a token that stands does not feel its own place, and bans.
    ban = sorted(rng.integers(20, 506, 120).tolist())
    trajectory(w, "sampler-joint-threshold.penalties", rng,
               lambda r: (edited(r).any(-1) & (r["k"] > 0)).any() and (edited(r).any(-1) & (r["k"] == 0)).any(), length,
               **joint, post_steps=4, repetition_penalty=1.3, presence_penalty=0.4, ban=ban)
    # Everything that edits can do, in two runs.
    everything = {"deleted a token", "inserted", "settled", "scrubbed", "out of steps"}
    trajectory(w, "sampler-edit", rng, everything, length, commands=True, threshold=0.5, edit_threshold=0.3, post_steps=8)
    trajectory(w, "sampler-edit.loop", rng, {"another way", "deleted a mask", "inserted"}, length, commands=True,
               threshold=0.35, edit_threshold=0.6, post_steps=8)

    is_2_2()
    w, rng = make_weights(), np.random.default_rng(SEED + 1)
    forward_cases(w, rng, reference)
    cached_case(w, rng, reference)
    trajectory(w, "sampler-threshold", rng, threshold, length, threshold=0.35)
    trajectory(w, "sampler-edit", rng, {"deleted a token", "inserted", "settled"}, length, commands=True, threshold=0.5,
               edit_threshold=0.3, post_steps=8)
    write_model(w, OUT / "models" / (model() + ".gguf"))


if __name__ == "__main__":
    main()
