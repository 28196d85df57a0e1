#!/usr/bin/env python3
"""The text of `llama-eval-callback` for one pass without a causal mask, as `redraft diagnose` reads it.

    python3 scripts/make_eval_callback.py MODEL.gguf 20,31,57 OUT.txt [NAME PATTERN]

Needs numpy and llama-cpp-python, which runs the graph of llama.cpp and calls back for each node. The nodes are printed by the rule of
llama.cpp's `common/debug.cpp` (type, operation, extents; four decimals; three elements at either end of an extent above six; the sum in
f32 over all elements), written anew here, for those whose names fit the pattern (a regular expression) and all types that are not
quantized. The original decodes as for a causal model, with the logits of the last token; here all rows have logits.
"""
import ctypes
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


def show(t, out):
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
                cell = lambda i: "   ..., " if i is None else f"{row[i]:12.4f}" + (", " if i < ne[3] - 1 else "")
                out.write("            [" + "".join(map(cell, places)) + "  ],\n")
            out.write("        ],\n")
        out.write(f"    ]\n    sum = {total:f}\n")


def main():
    path, ids, target = sys.argv[1], [int(i) for i in sys.argv[2].split(",")], sys.argv[3]
    wanted = re.compile(sys.argv[4] if len(sys.argv) > 4 else "")
    quiet = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    model = lc.llama_model_load_from_file(path.encode(), lc.llama_model_default_params())
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 128
    params.flash_attn_type = 0
    with open(target, "w") as out:
        @ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
        def node(address, ask, _):
            t = Tensor.from_address(address)
            if not ask and wanted.search(t.name.decode()):
                show(t, out)
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


if __name__ == "__main__":
    main()
