#!/usr/bin/env python3
"""The text of `llama-eval-callback` for one pass without a causal mask, as `redraft diagnose` reads it.

    python3 scripts/make_eval_callback.py MODEL.gguf 20,31,57 OUT.txt [NAME PATTERN] [--flash-attention] [--decimals N]

`1:601` are the ids from 1 to 600. With OUT.npz whole results are written in the place of the text, and the ids. The text has four decimals
where nothing else is said. --flash-attention is llama.cpp's default; without it attention rounds as its other products do.

Needs numpy and llama-cpp-python, which runs the graph of llama.cpp and calls back for each node. The nodes are printed by the rule of
llama.cpp's `common/debug.cpp` (type, operation, extents; four decimals; three elements at either end of an extent above six; the sum in
f32 over all elements), written anew here, for those whose names fit the pattern (a regular expression) and all types that are not
quantized. The original decodes as for a causal model, with the logits of the last token; here all rows have logits.
"""
import argparse
import ctypes
import os
import re
import sys

import llama_cpp as lc
import numpy as np

# The start of ggml_tensor (ggml.h): type, buffer, ne, nb, op, op_params, flags, src.
class Tensor(ctypes.Structure):
    pass


Tensor._fields_ = [("type", ctypes.c_int), ("buffer", ctypes.c_void_p), ("ne", ctypes.c_int64 * 4), ("nb", ctypes.c_size_t * 4),
                   ("op", ctypes.c_int), ("op_params", ctypes.c_int32 * 16), ("flags", ctypes.c_int32), ("src", ctypes.POINTER(Tensor) * 10),
                   ("view_src", ctypes.c_void_p), ("view_offs", ctypes.c_size_t), ("data", ctypes.c_void_p), ("name", ctypes.c_char * 64)]
TYPES = {0: np.float32, 1: np.float16, 26: np.int32}
ggml = ctypes.CDLL(lc.llama_cpp._lib._name) if not hasattr(lc.llama_cpp._lib, "ggml_op_desc") else lc.llama_cpp._lib
for name in ("ggml_type_name", "ggml_op_desc", "ggml_get_name"):
    getattr(ggml, name).restype = ctypes.c_char_p
ggml.ggml_type_name.argtypes = [ctypes.c_int]
ggml.ggml_op_desc.argtypes = ggml.ggml_get_name.argtypes = [ctypes.c_void_p]


def extents(t):
    return ", ".join(str(n) for n in t.ne)


def ends(n):
    """Places that are shown, with None where others are left out."""
    return list(range(n)) if n <= 6 else [0, 1, 2, None, n - 3, n - 2, n - 1]


def show(t, out, decimals):
    """Prints a node."""
    name = lambda p: ggml.ggml_get_name(ctypes.addressof(p.contents)).decode()
    first, second = t.src[0], t.src[1]
    of = f"{name(second)}{{{extents(second.contents)}}}" if second else ""
    op, kind = ggml.ggml_op_desc(ctypes.addressof(t)).decode(), ggml.ggml_type_name(t.type).decode()
    out.write(f"common_debug_cb_eval: {t.name.decode():>24} = ({kind}) {op:>10}({name(first)}{{{extents(first.contents)}}}, {of}}}) = {{{extents(t)}}}\n")
    if t.type not in TYPES:
        return
    dtype = np.dtype(TYPES[t.type])
    ne, nb = list(t.ne)[::-1], list(t.nb)[::-1]
    size = sum((n - 1) * b for n, b in zip(ne, nb)) + dtype.itemsize
    flat = np.frombuffer((ctypes.c_char * size).from_address(t.data), np.uint8)
    x = np.lib.stride_tricks.as_strided(flat[:size // dtype.itemsize * dtype.itemsize].view(dtype), ne, nb).astype(np.float32)
    # In the order of the original, one after another.
    total = np.cumsum(x.reshape(-1), dtype=np.float32)[-1]
    for block in x:
        out.write("    [\n")
        for i2 in ends(ne[1]):
            if i2 is None:
                out.write("        ..., \n")
                continue
            out.write("        [\n")
            for i1 in ends(ne[2]):
                if i1 is None:
                    out.write("            ..., \n")
                    continue
                row, places = block[i2, i1], ends(ne[3])
                cell = lambda i: "   ..., " if i is None else f"{row[i]:12.{decimals}f}" + (", " if i < ne[3] - 1 else "")
                out.write("            [" + "".join(map(cell, places)) + "  ],\n")
            out.write("        ],\n")
        out.write(f"    ]\n    sum = {total:.{max(6, decimals)}f}\n")


def numbers(t):
    """A result of f32, in its shape."""
    ne, nb = list(t.ne)[::-1], list(t.nb)[::-1]
    size = sum((n - 1) * b for n, b in zip(ne, nb)) + 4
    flat = np.frombuffer((ctypes.c_char * size).from_address(t.data), np.float32)
    return np.lib.stride_tricks.as_strided(flat, ne, nb).copy()


def main():
    parser = argparse.ArgumentParser()
    for name in ("model", "ids", "out"):
        parser.add_argument(name)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--flash-attention", action="store_true")
    parser.add_argument("--decimals", type=int, default=4)
    args = parser.parse_args()
    path, ids, target = args.model, args.ids, args.out
    first, _, end = ids.partition(":")
    ids = list(range(int(first), int(end))) if end else [int(i) for i in ids.split(",")]
    wanted = re.compile(args.pattern)
    quiet = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 128 if len(ids) <= 128 else 2048
    params.flash_attn_type = -1 if args.flash_attention else 0
    whole = {} if target.endswith(".npz") else None
    with open(os.devnull if whole is not None else target, "w") as out:
        @ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
        def node(address, ask, _):
            t = Tensor.from_address(address)
            if ask or not wanted.search(t.name.decode()):
                return True
            if whole is None:
                show(t, out, args.decimals)
            elif t.type == 0:
                whole[t.name.decode()] = numbers(t)
            return True

        params.cb_eval = ctypes.cast(node, type(params.cb_eval))
        context = lc.llama_init_from_model(model, params)
        lc.llama_set_causal_attn(context, False)
        batch = lc.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
            batch.seq_id[i][0] = 0
        if lc.llama_decode(context, batch):
            sys.exit(f"llama.cpp cannot run {path}")
    if whole is not None:
        rows = {name: x.reshape(len(ids), -1) for name, x in whole.items()}
        np.savez_compressed(target, ids=np.array(ids, np.int32), **rows)


if __name__ == "__main__":
    main()
