#!/usr/bin/env python3
"""Makes testdata/blocks and testdata/gguf from reference implementations, and the tables of grids.

    pip install gguf==0.19.0 numpy==2.4.6
    python scripts/make_block_goldens.py --model redraft-tiny-bf16.gguf --ggml libggml-base.so testdata
    python scripts/make_block_goldens.py --grids crates/redraft-gguf/src/quant/iq_grids.rs

testdata/blocks/inputs.gguf     weights to encode: Gaussian, heavy-tailed (Student t, 3 degrees of freedom) and rows
                                of a trained model, all [256, 16] in BF16; `importance` [256], one per column
testdata/blocks/<type>.gguf     random          blocks of random bytes, some with special scales
                                random.values   what they decode to
                                encoded         the first four rows of `model`, encoded by ggml, without importances
                                                where ggml does not ask for them
                                encoded.values  what they decode to
                                all             blocks with every scale, code or grid entry of a small type
                                all.values      what they decode to
                                all.digest      of plain 16-bit floats: FNV-1a over the f32 bits of all 65,536 patterns
                                rmse.<input>, weighted_rmse.<input>   ggml's error without and with importances,
                                of types that redraft encodes
testdata/gguf/*.gguf            files by gguf-py with every metadata type

Values are those of gguf-py where it decodes a type, else those of a decoder below, written from the layout that ggml
publishes; ggml's own are compared where it has a decoder. `decoder` in each file says which.

Two runs with the same arguments write the same bytes. The ggml library is the `libggml-base` of any llama.cpp
build.
"""
import argparse
import ctypes
from importlib.metadata import version
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, GGMLQuantizationType as T, quants
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Q2_0 is younger than gguf-py 0.19.0, and Q8_1 has been two f16 and 32 bytes in ggml since 2024.
Q2_0 = 42
GGML_QUANT_SIZES[Q2_0] = (64, 18)
GGML_QUANT_SIZES[T.Q8_1] = (32, 36)

# type -> byte offsets of its f16 scales in a block
TYPES = {T.F16: [], T.BF16: [], T.Q4_0: [0], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0],
         T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
         T.Q4_1: [0, 2], T.Q8_1: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q8_K: [],
         T.IQ2_XXS: [0], T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0], T.IQ1_S: [0], T.IQ1_M: ["spread"],
         T.IQ4_NL: [0], T.IQ4_XS: [0], T.TQ1_0: [52], T.TQ2_0: [64], T.MXFP4: [], T.NVFP4: [], T.Q1_0: [0], Q2_0: [0],
         T.F64: [], T.I8: [], T.I16: [], T.I32: [], T.I64: []}
# types whose encoding by redraft is compared with ggml's
WRITTEN = {T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K,
           T.IQ4_NL, T.IQ4_XS, T.MXFP4}
NUMBERS = {T.F64: "<f8", T.I8: "<i1", T.I16: "<i2", T.I32: "<i4", T.I64: "<i8"}
# types that ggml encodes only with importances, or not at all
NEEDS_IMPORTANCE = {T.IQ2_XXS, T.IQ2_XS, T.IQ1_S, T.IQ1_M}
NOT_ENCODED = {T.Q8_1, T.Q8_K, *NUMBERS}
# types that only the decoders of this file and, for all but Q8_1 and the plain numbers, ggml decode
OWN = {T.Q8_1, T.Q8_K, T.Q1_0, Q2_0, *NUMBERS}
# zero, smallest and largest subnormal, one, largest finite, infinities, quiet and signalling NaN
SPECIAL = [0x0000, 0x8000, 0x0001, 0x03FF, 0x3C00, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7C01]
COLUMNS, ROWS = 256, 16


def name_of(typ):
    return "Q2_0" if typ == Q2_0 else typ.name


def to_bf16(x):
    """nearest-even BF16 values of f32, as their f32 values and as raw 16-bit patterns"""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    u = (u + ((u >> 16) & 1) + np.uint32(0x7FFF)) & np.uint32(0xFFFF0000)
    return u.view(np.float32), (u >> 16).astype(np.uint16)


def own_decoder(raw, typ):
    """values of the types that gguf-py does not decode"""
    if typ in NUMBERS:
        return raw.reshape(-1).view(NUMBERS[typ]).astype(np.float32)
    if typ == T.Q8_K:  # d: f32, 256 codes i8, 16 sums i16
        return np.ascontiguousarray(raw[:, :4]).view("<f4") * raw[:, 4:260].view(np.int8).astype(np.float32)
    d = np.ascontiguousarray(raw[:, :2]).view("<f2").astype(np.float32)
    if typ == T.Q8_1:  # d: f16, s = d * sum of codes: f16, 32 codes i8
        return d * raw[:, 4:].view(np.int8).astype(np.float32)
    bits = np.unpackbits(raw[:, 2:], axis=1, bitorder="little").astype(np.float32)
    if typ == T.Q1_0:  # d: f16, 128 bits: 0 stands for -1, 1 for 1
        return d * (2 * bits - 1)
    assert typ == Q2_0  # d: f16, 64 codes of two bits, 0..3 stands for -1..2
    return d * (bits[:, 0::2] + 2 * bits[:, 1::2] - 1)


def decode(raw, typ):
    """values of raw blocks, one block per row"""
    with np.errstate(all="ignore"):
        if typ == T.F16:
            values = raw.view(np.float16).astype(np.float32)
        else:
            values = own_decoder(raw, typ) if typ in OWN else dequantize(raw, typ)
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
        """values, or nothing where ggml has no decoder"""
        name = {T.F16: "ggml_fp16_to_fp32_row", T.BF16: "ggml_bf16_to_fp32_row"}.get(
            typ, f"dequantize_row_{name_of(typ).lower().replace('_k', '_K')}")
        if not hasattr(self.lib, name):
            return None
        n, size = GGML_QUANT_SIZES[typ]
        out = np.zeros(raw.size // size * n, np.float32)
        getattr(self.lib, name)(ctypes.c_void_p(raw.ctypes.data), ctypes.c_void_p(out.ctypes.data),
                                ctypes.c_int64(out.size))
        return out


def same_bits(a, b):
    return bool(((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))).all())


def set_scale(block, at, pattern):
    """an f16 scale; that of IQ1_M is spread over the upper four bits of four 16-bit words"""
    if at == "spread":
        words = block[48:56].view("<u2")
        words[:] = (words & 0x0FFF) | [(pattern >> 4 * i & 15) << 12 for i in range(4)]
    else:
        block[at:at + 2] = np.array([pattern], "<u2").view(np.uint8)


def random_blocks(typ, rng):
    n, size = GGML_QUANT_SIZES[typ]
    if typ in NUMBERS:
        return random_numbers(typ, rng)
    if n == 1:
        return np.ascontiguousarray(rng.permutation(65536)[:1024].astype(np.uint16)).view(np.uint8).reshape(-1, size)
    raw = rng.integers(0, 256, (8 if n == 256 else 32, size), np.uint8)
    for i, at in enumerate(TYPES[typ] * 5):
        set_scale(raw[i % raw.shape[0]], at, SPECIAL[i % len(SPECIAL)])
    # The scale of the last block is ordinary, so that all codes of at least one block are visible.
    for at in TYPES[typ]:
        set_scale(raw[-1], at, int(np.float16(1.25).view(np.uint16)))
    if typ == T.Q8_K:
        for block, d in zip(raw, [1.25, -3e-5, 0.0, 1e-45, 3e38, np.inf, np.nan]):
            block[:4] = np.array([d], "<f4").view(np.uint8)
    return raw


def random_numbers(typ, rng):
    """plain numbers: random bits, the ends of the range, and what lies between two f32"""
    dtype = np.dtype(NUMBERS[typ])
    if dtype.kind == "f":
        x = rng.normal(0, 1, 256) * 10.0 ** rng.integers(-50, 50, 256)
        half = 1 + 2.0 ** -24  # between 1 and the next f32: to even
        x[:10] = [0.0, -0.0, half, half + 2.0 ** -52, 1 + 3 * 2.0 ** -24, 2.0 ** -149, 2.0 ** -150, 1e300, -np.inf, np.nan]
        return x.astype(dtype).view(np.uint8).reshape(-1, 8)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 256, dtype, endpoint=True)
    x[:5] = [info.min, info.max, 0, -1, 1]
    if dtype.itemsize > 2:
        x[5:10] = [2 ** 24 + 1, 2 ** 24 + 3, -(2 ** 24) - 1, 2 ** 30 + 64, 2 ** 30 + 65]
    return x.view(np.uint8).reshape(-1, dtype.itemsize)


def all_blocks(typ):
    """blocks in which every scale, code or entry of the grid occurs; nothing for types that need no such list"""
    n, size = GGML_QUANT_SIZES[typ]
    one = int(np.float16(1).view(np.uint16))
    nibbles = np.arange(16, dtype=np.uint8)
    if typ == T.IQ4_NL:
        raw = np.zeros((1, size), np.uint8)
        raw[0, 2:] = nibbles | (15 - nibbles) << 4
    elif typ == T.MXFP4:
        raw = np.zeros((256, size), np.uint8)
        raw[:, 0] = np.arange(256)
        raw[:, 1:] = nibbles | (15 - nibbles) << 4
    elif typ == T.NVFP4:
        raw = np.zeros((64, size), np.uint8)
        raw[:, :4] = np.arange(256).reshape(64, 4)
        raw[:, 4:] = np.tile(nibbles[:8] | (15 - nibbles[:8]) << 4, 4)
    elif typ == T.TQ1_0:  # all bytes of five digits; the four bytes of four digits take some
        raw = np.zeros((6, size), np.uint8)
        raw[:, :48] = (np.arange(6 * 48) % 256).reshape(6, 48)
        raw[:, 48:52] = (np.arange(24) * 11).reshape(6, 4)
    elif typ in (T.IQ2_XXS, T.IQ3_XXS):
        per_word = 4 if typ == T.IQ2_XXS else 8  # indices for each 32 weights
        groups = 256 // per_word
        index = np.arange(256, dtype=np.uint8).reshape(groups, per_word)
        words = np.array([sum(((g * 4 + i) * 37 % 128) << 7 * i for i in range(4)) | g % 16 << 28 for g in range(groups)], "<u4")
        words = words.view(np.uint8).reshape(groups, 4)
        raw = np.zeros((groups // 8, size), np.uint8)
        if typ == T.IQ2_XXS:
            raw[:, 2:] = np.concatenate([index, words], axis=1).reshape(-1, size - 2)
        else:
            raw[:, 2:66], raw[:, 66:] = index.reshape(-1, 64), words.reshape(-1, 32)
    elif typ == T.IQ2_XS:
        i = np.arange(512)
        raw = np.zeros((16, size), np.uint8)
        raw[:, 2:66] = (i | i * 37 % 128 << 9).astype("<u2").view(np.uint8).reshape(16, 64)
        raw[:, 66:] = (np.arange(128) * 29 % 256).reshape(16, 8)
    elif typ == T.IQ2_S:
        i = np.arange(1024).reshape(32, 32)
        raw = np.zeros((32, size), np.uint8)
        raw[:, 2:34], raw[:, 34:66] = i % 256, i * 37 % 256
        raw[:, 66:74] = high_bits(i >> 8, 2)
        raw[:, 74:] = (np.arange(256) * 29 % 256).reshape(32, 8)
    elif typ == T.IQ3_S:
        i = np.arange(512).reshape(8, 64)
        raw = np.zeros((8, size), np.uint8)
        raw[:, 2:66], raw[:, 66:74] = i % 256, high_bits(i >> 8, 1)
        raw[:, 74:106] = (np.arange(256) * 37 % 256).reshape(8, 32)
        raw[:, 106:] = (np.arange(32) * 29 % 256).reshape(8, 4)
    elif typ == T.IQ1_S:
        i = np.arange(2048).reshape(64, 32)
        raw = np.zeros((64, size), np.uint8)
        raw[:, 2:34] = i % 256
        high = (i >> 8).reshape(64, 8, 4)
        words = high[..., 0] | high[..., 1] << 3 | high[..., 2] << 6 | high[..., 3] << 9
        raw[:, 34:] = (words | np.arange(512).reshape(64, 8) % 16 << 12).astype("<u2").view(np.uint8).reshape(64, 16)
    elif typ == T.IQ1_M:
        i = np.arange(2048).reshape(64, 32)
        raw = np.zeros((64, size), np.uint8)
        raw[:, :32] = i % 256
        raw[:, 32:48] = high_bits(i >> 8 | (i * 5 & 8), 4)
        raw[:, 48:] = (np.arange(512) * 29 % 256).reshape(64, 8)
    else:
        return None
    for at in TYPES[typ]:
        for block in raw:
            set_scale(block, at, one)
    return raw


def high_bits(x, bits):
    """packs the rows of x, `bits` bits each, the first in the lowest bits"""
    x = x.reshape(x.shape[0], -1, 8 // bits)
    return sum(x[..., i] << bits * i for i in range(8 // bits)).astype(np.uint8)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


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
        w = GGUFWriter(out / f"{name_of(typ).lower()}.gguf", "test-data")
        sets = {"random": random_blocks(typ, rng)}
        if typ not in NOT_ENCODED:
            wanted = importance if typ in NEEDS_IMPORTANCE else None
            sets["encoded"] = ggml.encode(inputs["model"][:4], typ, wanted)
        if (blocks := all_blocks(typ)) is not None:
            sets["all"] = blocks
        w.add_string("made_by", "scripts/make_block_goldens.py")
        decoder = "scripts/make_block_goldens.py" if typ in OWN else f"gguf-py {version('gguf')}"
        if ggml.decode(sets["random"], typ) is not None:
            decoder += ", equal to ggml of llama.cpp (llama-cpp-python 0.3.36)"
        w.add_string("decoder", decoder)
        if "encoded" in sets:
            w.add_string("encoder", "ggml_quantize_chunk of llama.cpp (llama-cpp-python 0.3.36)")
        for name, blocks in sets.items():
            values, second = decode(blocks, typ), ggml.decode(blocks, typ)
            assert second is None or same_bits(values, second), (typ, name)
            put(w, name, blocks.reshape(1, -1), typ)
            if name == "all":
                with np.errstate(over="ignore"):
                    half = values.astype(np.float16)
                values = half if same_bits(half.astype(np.float32), values) else values
            w.add_tensor(f"{name}.values", values)
        if typ in (T.F16, T.BF16):
            every = np.arange(65536, dtype="<u2").view(np.uint8).reshape(-1, 2)
            bits = decode(every, typ)
            bits = np.where(np.isnan(bits), np.uint32(0x7FC00000), bits.view(np.uint32))
            w.add_uint64("all.digest", fnv1a(bits.astype("<u4").tobytes()))
        for name, x in inputs.items() if typ in WRITTEN else ():
            x64 = x.astype(np.float64)
            plain = decode(ggml.encode(x, typ, None), typ).reshape(x.shape) - x64
            w.add_float64(f"rmse.{name}", float(np.sqrt((plain ** 2).mean())))
            weighted = decode(ggml.encode(x, typ, importance), typ).reshape(x.shape) - x64
            total = importance.astype(np.float64).sum() * ROWS
            w.add_float64(f"weighted_rmse.{name}", float(np.sqrt((weighted ** 2 * importance).sum() / total)))
        finish(w)


GRIDS = """//! The grids of the IQ types, packed as they are published: one entry per number, the first element lowest.
//!
//! Made by `scripts/make_block_goldens.py --grids` from the tables of gguf-py; `iq.rs` unpacks them. The tests compare
//! every entry with what gguf-py decodes it to.

"""


def grids(path):
    out = GRIDS
    for name, cls, elements in [("IQ2_XXS", quants.IQ2_XXS, "8 of 2 bits"), ("IQ2_XS", quants.IQ2_XS, "8 of 2 bits"),
                                ("IQ2_S", quants.IQ2_S, "8 of 2 bits"), ("IQ1", quants.IQ1_S, "8 of 2 bits"),
                                ("IQ3_XXS", quants.IQ3_XXS, "4 of 4 bits"), ("IQ3_S", quants.IQ3_S, "4 of 4 bits")]:
        packed = np.frombuffer(bytes.fromhex(cls.grid_hex.decode()), "<u2")
        assert packed.size == cls.grid_shape[0]
        # Lines as rustfmt breaks them.
        lines = [packed[i:i + 13] for i in range(0, packed.size, 13)]
        rows = "".join("    " + " ".join(f"0x{v:04X}," for v in line) + "\n" for line in lines)
        stands = ", ".join(str(v) for v in cls.grid_map)
        out += f"/// {elements} each, standing for {stands}.\n"
        out += f"pub(super) const {name}: [u16; {packed.size}] = [\n{rows}];\n\n"
    Path(path).write_text(out.rstrip("\n") + "\n")


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
    p.add_argument("--model", help="a BF16 model whose rows are multiples of 256")
    p.add_argument("--ggml", help="path of libggml-base")
    p.add_argument("--grids", help="write the tables of grids to this Rust file, and nothing else")
    p.add_argument("out", type=Path, nargs="?", help="the testdata folder")
    a = p.parse_args()
    if a.grids:
        return grids(a.grids)
    if not (a.model and a.ggml and a.out):
        p.error("--model, --ggml and the testdata folder are needed")
    for folder in ["blocks", "gguf"]:
        (a.out / folder).mkdir(parents=True, exist_ok=True)
    block_files(a.out / "blocks", a.model, Ggml(a.ggml))
    sample_files(a.out / "gguf")


if __name__ == "__main__":
    main()
