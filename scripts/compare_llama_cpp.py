#!/usr/bin/env python3
"""Logits of llama.cpp beside redraft's, for the goldens of models that it knows: dream, llada, llada-moe, rnd1.

    python3 scripts/compare_llama_cpp.py [PATH OF redraft] [--flash-attention]

Needs numpy and llama-cpp-python; without them it prints a skip and ends with 0. Each stored file is run by both on the ids of its
`forward` and `long` cases. llama.cpp rounds activations to the weights' type (to 8 bits for quantized ones), so it is as far away as that
makes it: the limits below are five times what was measured when the goldens were made. Exit status 1 if a case is further away, or if the
most likely id of a row differs by more than the rounding explains. --flash-attention is the default of llama.cpp, which puts queries, keys
and values into f16: files in F32 are then as far away as those in F16.
"""
import ctypes
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ORACLE = ROOT / "testdata" / "oracle"
# 1 - cos at most, by the type in the file's name.
LIMITS = {"F32": 1e-11, "F16": 1e-6, "BF16": 1e-4, "Q8_0": 2e-2, "Q4_K_M": 2e-2, "Q4_K_M-llamacpp": 2e-2}
FLASH = "--flash-attention" in sys.argv
if FLASH:
    LIMITS["F32"] = LIMITS["F16"]
TYPES = {"F64": "<f8", "F32": "<f4", "I32": "<i4"}

try:
    import llama_cpp as lc
    import numpy as np
except ImportError as e:
    print(f"skipped: {e.name} is not installed")
    sys.exit(0)


def read(path):
    raw = path.read_bytes()
    n = struct.unpack_from("<Q", raw)[0]
    head = json.loads(raw[8:8 + n])
    meta = head.pop("__metadata__", {})
    tensors = {}
    for name, t in head.items():
        if t["dtype"] in TYPES:
            a, b = t["data_offsets"]
            tensors[name] = np.frombuffer(raw[8 + n + a:8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"])
    return meta, tensors


@lc.llama_log_callback
def quiet(_level, _text, _data):
    pass


def theirs(path, ids):
    """Raw logits [ids, vocabulary] of one pass without a causal mask."""
    model = lc.llama_model_load_from_file(str(path).encode(), lc.llama_model_default_params())
    if not model:
        raise RuntimeError(f"llama.cpp cannot load {path}")
    params = lc.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 128
    params.flash_attn_type = -1 if FLASH else 0
    context = lc.llama_init_from_model(model, params)
    lc.llama_set_causal_attn(context, False)
    batch = lc.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, id in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(id), i, 1, 1
        batch.seq_id[i][0] = 0
    if lc.llama_decode(context, batch):
        raise RuntimeError(f"llama.cpp cannot run {path}")
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    logits = ctypes.cast(lc.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
    out = np.ctypeslib.as_array(logits, shape=(len(ids), vocab)).astype(np.float64)
    lc.llama_batch_free(batch)
    lc.llama_free(context)
    lc.llama_model_free(model)
    return out


def main():
    paths = [a for a in sys.argv[1:] if not a.startswith("--")]
    redraft = paths[0] if paths else str(ROOT / "target" / "debug" / "redraft")
    lc.llama_log_set(quiet, ctypes.c_void_p(0))
    lc.llama_backend_init()
    bad = 0
    paths = [c for kind in ("forward", "long") for c in sorted((ORACLE / "cases").glob(f"*.{kind}.safetensors"))]
    cases = [c for c in paths if not c.name.startswith("dg-")]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "ours.safetensors"
        for case in cases:
            meta, golden = read(case)
            model = ORACLE / "models" / meta["model"]
            subprocess.run([redraft, "trace", "-q", "--numerics", "exact", "-m", str(model), "--like", str(case), "-o", str(out)], check=True, capture_output=True)
            a, b = read(out)[1]["logits"].astype(np.float64), theirs(model, golden["ids"])
            far = 1 - (a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())
            # A row whose two best are closer than the difference may go either way.
            top = np.sort(a, 1)
            clear = top[:, -1] - top[:, -2] > 2 * np.abs(a - b).max(1)
            other = int((a.argmax(1) != b.argmax(1))[clear].sum())
            kind = meta["model"].removesuffix(".gguf").split(".", 1)[1]
            ok = far <= LIMITS[kind] and other == 0
            bad += not ok
            print(f"{'ok ' if ok else 'BAD'} {case.stem:40} 1-cos {far:.1e}  max abs {np.abs(a - b).max():.1e}  "
                  f"argmax equal in {int((a.argmax(1) == b.argmax(1)).sum())} of {len(a)} rows")
    print(f"{len(cases)} cases, {bad} too far away")
    return 1 if bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
