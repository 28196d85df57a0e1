#!/usr/bin/env python3
"""The files of other programs in testdata/diagnose/foreign (the text of llama.cpp is made by make_eval_callback.py).

    python3 scripts/make_foreign_goldens.py REDRAFT

Needs numpy, torch and transformers; REDRAFT converts the model. A tiny Qwen3 of transformers with fixed random weights that are exact in
bfloat16 is saved, run as it is (with its causal mask) and without the mask by hf_hidden_states.py, and converted as A2D-Qwen3, which has
no such mask.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "testdata" / "diagnose" / "foreign"
TYPES = {"F32": "<f4", "I32": "<i4"}


def read(path, name):
    raw = path.read_bytes()
    n = struct.unpack_from("<Q", raw)[0]
    t = json.loads(raw[8:8 + n])[name]
    a, b = t["data_offsets"]
    return np.frombuffer(raw[8 + n + a:8 + n + b], TYPES[t["dtype"]]).reshape(t["shape"])


def npz():
    """Logits of a mistake in Fortran order, compressed, under the name of transformers' head."""
    logits = read(ROOT / "testdata/diagnose/dream-03.safetensors", "logits")
    ids = read(ROOT / "testdata/oracle/cases/dream-tiny.F16.forward.safetensors", "ids").astype(np.int64)
    np.savez_compressed(OUT / "dream-03.npz", ids=ids, lm_head=np.asfortranarray(logits))


def qwen(redraft, folder):
    torch.manual_seed(7)
    config = Qwen3Config(vocab_size=257, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                         head_dim=16, max_position_embeddings=64, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_theta=1e4, eos_token_id=0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((torch.randn_like(p) * (0.3 if p.ndim > 1 else 0.2) + (p.ndim == 1)).bfloat16().float())
    model.save_pretrained(folder)
    for flags, name in [([], ".causal"), (["--bidirectional"], "")]:
        out = OUT / f"a2d-qwen3-hf{name}.safetensors"
        subprocess.run([sys.executable, ROOT / "scripts/hf_hidden_states.py", folder, "20,31,57,44,256,256,63,9", out, *flags], check=True)
    # The same weights as the model without a causal mask, with a vocabulary of bytes and a mask.
    said = json.loads((folder / "config.json").read_text())
    said |= {"architectures": ["A2DQwen3LMHeadModel"], "rope_theta": 1e4}
    (folder / "config.json").write_text(json.dumps(said))
    printable = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or b >= 0xae]
    others = iter(range(0x100, 0x300))
    vocab = {chr(b if b in printable else next(others)): b for b in range(256)}
    tokenizer = {"added_tokens": [{"id": 256, "content": "<|mask|>", "special": True}], "pre_tokenizer": {"type": "ByteLevel"},
                 "model": {"type": "BPE", "vocab": vocab, "merges": []}}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    subprocess.run([redraft, "convert", "--type", "bf16", folder, OUT / "a2d-qwen3-hf.gguf"], check=True)


def main():
    OUT.mkdir(exist_ok=True)
    npz()
    with tempfile.TemporaryDirectory() as folder:
        qwen(sys.argv[1], pathlib.Path(folder) / "qwen3")


if __name__ == "__main__":
    main()
