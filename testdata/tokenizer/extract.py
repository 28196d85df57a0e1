"""Writes the tokenizer metadata of a GGUF file as compact JSON:  python extract.py model.gguf > vocab.json

Standard library only. Keys are those of `TokenizerParts`; scores are left out where they are all equal.
"""
import json
import struct
import sys

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
NAMES = {"model": "model", "pre": "pre", "tokens": "tokens", "token_type": "types", "merges": "merges", "bos_token_id": "bos",
         "eos_token_id": "eos", "unknown_token_id": "unknown", "padding_token_id": "pad", "mask_token_id": "mask",
         "eot_token_id": "eot", "eom_token_id": "eom", "add_bos_token": "add_bos", "add_space_prefix": "add_space_prefix"}


def metadata(f):
    def scalar(fmt):
        return struct.unpack("<" + fmt, f.read(struct.calcsize("<" + fmt)))[0]

    def value(kind):
        if kind == 8:
            return f.read(scalar("Q")).decode()
        if kind == 9:
            kind, n = scalar("I"), scalar("Q")
            return [value(kind) for _ in range(n)]
        return scalar(SCALARS[kind])

    assert f.read(4) == b"GGUF"
    scalar("I"), scalar("Q")
    return {value(8): value(scalar("I")) for _ in range(scalar("Q"))}


if __name__ == "__main__":
    meta = metadata(open(sys.argv[1], "rb"))
    out = {new: meta[f"tokenizer.ggml.{old}"] for old, new in NAMES.items() if f"tokenizer.ggml.{old}" in meta}
    scores = meta.get("tokenizer.ggml.scores", [])
    if len(set(scores)) > 1:
        out["scores"] = scores
    if "tokenizer.chat_template" in meta:
        out["chat_template"] = meta["tokenizer.chat_template"]
    json.dump(out, sys.stdout, ensure_ascii=False, separators=(",", ":"))
    print()
