#!/usr/bin/env python3
"""Makes testdata/blocks and testdata/gguf from reference implementations.

    pip install gguf==0.19.0 numpy
    python scripts/make_block_goldens.py --model redraft-tiny-bf16.gguf --ggml libggml-base.so testdata

testdata/blocks/inputs.gguf     weights to encode: Gaussian, heavy-tailed (Student t, 3 degrees of freedom) and rows
                                of a trained model, all [256, 16] in BF16; `importance` [256], one per column
testdata/blocks/<type>.gguf     random          blocks of random bytes, some with special scales
                                random.values   what they decode to (gguf-py)
                                encoded         the first four rows of `model`, encoded by ggml without importances
                                encoded.values  what they decode to (gguf-py)
                                rmse.<input>, weighted_rmse.<input>   ggml's error without and with importances
testdata/gguf/*.gguf            files by gguf-py with every metadata type

Two runs with the same arguments write the same bytes. The ggml library is the `libggml-base` of any llama.cpp
build; its dequantization is compared with gguf-py's on the way.
"""
import argparse
import ctypes
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# type -> byte offsets of its f16 scales in a block
TYPES = {T.F16: [], T.BF16: [], T.Q4_0: [0], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
         T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
# zero, smallest and largest subnormal, one, largest finite, infinities, quiet and signalling NaN
SPECIAL = [0x0000, 0x8000, 0x0001, 0x03FF, 0x3C00, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]
COLUMNS, ROWS = 256, 16


def to_bf16(x):
    """nearest-even BF16 values of f32, as their f32 values and as raw 16-bit patterns"""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    u = (u + ((u >> 16) & 1) + np.uint32(0x7FFF)) & np.uint32(0xFFFF0000)
    return u.view(np.float32), (u >> 16).astype(np.uint16)


def decode(raw, typ):
    """values of raw blocks, one block per row"""
    with np.errstate(all="ignore"):
        values = raw.view(np.float16).astype(np.float32) if typ == T.F16 else dequantize(raw, typ)
    return np.ascontiguousarray(values, np.float32).reshape(-1)


class Ggml:
    def __init__(self, path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.ggml_quantize_chunk.restype = ctypes.c_size_t
        self.lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                                 ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]

    def encode(self, x, typ, importance):
        n, size = GGML_QUANT_SIZES[typ]
        x = np.ascontiguousarray(x, np.float32)
        out = np.zeros((x.size // n, size), np.uint8)
        w = None if importance is None else importance.ctypes.data
        written = self.lib.ggml_quantize_chunk(int(typ), x.ctypes.data, out.ctypes.data, 0, x.shape[0], x.shape[1], w)
        assert written == out.size
        return out

    def decode(self, raw, typ):
        name = {T.F16: "ggml_fp16_to_fp32_row", T.BF16: "ggml_bf16_to_fp32_row"}.get(
            typ, f"dequantize_row_{typ.name.lower().replace('_k', '_K')}")
        n, size = GGML_QUANT_SIZES[typ]
        out = np.zeros(raw.size // size * n, np.float32)
        getattr(self.lib, name)(ctypes.c_void_p(raw.ctypes.data), ctypes.c_void_p(out.ctypes.data),
                                ctypes.c_int64(out.size))
        return out


def same_bits(a, b):
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def random_blocks(typ, rng):
    n, size = GGML_QUANT_SIZES[typ]
    if n == 1:
        return np.ascontiguousarray(rng.permutation(65536)[:1024].astype(np.uint16)).view(np.uint8).reshape(-1, size)
    raw = rng.integers(0, 256, (8 if n == 256 else 32, size), np.uint8)
    for i, at in enumerate(TYPES[typ] * 5):
        special = np.array([SPECIAL[i % len(SPECIAL)]], "<u2")
        raw[i % raw.shape[0], at:at + 2] = special.view(np.uint8)
    # The scale of the last block is ordinary, so that all codes of at least one block are visible.
    for at in TYPES[typ]:
        raw[-1, at:at + 2] = np.array([1.25], "<f2").view(np.uint8)
    return raw


def put(writer, name, array, typ):
    """adds a tensor from raw block bytes; `array` has one row per tensor row"""
    writer.add_tensor(name, np.ascontiguousarray(array).view(np.uint8).reshape(array.shape[0], -1), raw_dtype=typ)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def block_files(out, model, ggml):
    rng = np.random.default_rng(20260801)
    reader = GGUFReader(model)
    rows = []
    for name in ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.ffn_gate.weight", "blk.2.ffn_down.weight"]:
        t = next(t for t in reader.tensors if t.name == name)
        rows.append(dequantize(t.data, t.tensor_type).reshape(-1, COLUMNS)[40:44])
    inputs = {"gaussian": rng.normal(0, 0.02, (ROWS, COLUMNS)), "heavy": 0.02 * rng.standard_t(3, (ROWS, COLUMNS)),
              "model": np.concatenate(rows)}
    importance = rng.gamma(0.5, 2.0, COLUMNS).astype(np.float32)

    w = GGUFWriter(out / "inputs.gguf", "test-data")
    w.add_string("made_by", "scripts/make_block_goldens.py")
    w.add_string("model", Path(model).name)
    for name in inputs:
        inputs[name], patterns = to_bf16(inputs[name])
        put(w, name, patterns, T.BF16)
    w.add_tensor("importance", importance)
    finish(w)

    for typ in TYPES:
        w = GGUFWriter(out / f"{typ.name.lower()}.gguf", "test-data")
        w.add_string("made_by", "scripts/make_block_goldens.py")
        w.add_string("decoder", f"gguf-py {version('gguf')}")
        w.add_string("encoder", "ggml_quantize_chunk of llama.cpp (llama-cpp-python 0.3.36)")
        raw = random_blocks(typ, rng)
        encoded = ggml.encode(inputs["model"][:4], typ, None)
        for name, blocks in [("random", raw), ("encoded", encoded)]:
            values = decode(blocks, typ)
            assert same_bits(values, ggml.decode(blocks, typ)), (typ, name)
            put(w, name, blocks.reshape(1, -1), typ)
            w.add_tensor(f"{name}.values", values)
        for name, x in inputs.items():
            x64 = x.astype(np.float64)
            plain = decode(ggml.encode(x, typ, None), typ).reshape(x.shape) - x64
            w.add_float64(f"rmse.{name}", float(np.sqrt((plain ** 2).mean())))
            weighted = decode(ggml.encode(x, typ, importance), typ).reshape(x.shape) - x64
            total = importance.astype(np.float64).sum() * ROWS
            w.add_float64(f"weighted_rmse.{name}", float(np.sqrt((weighted ** 2 * importance).sum() / total)))
        finish(w)


def sample_files(out):
    path = out / "all-types-v3.gguf"
    w = GGUFWriter(path, "test-data")
    w.add_uint8("number.u8", 200)
    w.add_int8("number.i8", -100)
    w.add_uint16("number.u16", 60000)
    w.add_int16("number.i16", -30000)
    w.add_uint32("number.u32", 4000000000)
    w.add_int32("number.i32", -2000000000)
    w.add_uint64("number.u64", 1 << 63)
    w.add_int64("number.i64", -(1 << 62))
    w.add_float32("number.f32", 0.1)
    w.add_float64("number.f64", 0.1)
    w.add_bool("flag", True)
    w.add_string("text", "Grüße, 世界")
    w.add_array("words", ["", "a", "öü", "\n"])
    w.add_array("numbers", [1, -2, 3])
    w.add_array("floats", [0.5, -0.25])
    w.add_array("flags", [True, False, True])
    w.add_key_value("nested", [[1, 2], [3]], GGUFValueType.ARRAY, GGUFValueType.ARRAY)
    w.add_tensor("matrix", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("vector", np.array([1.5, -2.0], np.float16))
    finish(w)
    # Versions 2 and 3 differ in nothing but the number (3 added files in big-endian order).
    data = bytearray(path.read_bytes())
    data[4] = 2
    (out / "all-types-v2.gguf").write_bytes(data)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="a BF16 model whose rows are multiples of 256")
    p.add_argument("--ggml", required=True, help="path of libggml-base")
    p.add_argument("out", type=Path, help="the testdata folder")
    a = p.parse_args()
    for folder in ["blocks", "gguf"]:
        (a.out / folder).mkdir(parents=True, exist_ok=True)
    block_files(a.out / "blocks", a.model, Ggml(a.ggml))
    sample_files(a.out / "gguf")


if __name__ == "__main__":
    main()
