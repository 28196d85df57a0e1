"""Writes spm.vocab.json and spm.cases.json:  python make_spm.py   (sentencepiece 0.2.3, protobuf; runs in seconds)

A tiny SentencePiece model (BPE with byte fallback) trained on the questions of redraft-tiny, and what the
`sentencepiece` library makes of texts with it. Variants: with and without a space in front of the text, and with
some tokens typed as unused, which the library takes apart again after merging.
"""
import io
import json
import random
from pathlib import Path

import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

HERE = Path(__file__).parent
TURNS = ["<start_of_turn>", "<end_of_turn>"]
USER = ["<code>", "</code>"]
UNUSED_EVERY = 5  # of the learned tokens with three characters and more


def train():
    questions = json.loads((HERE / "../redraft-tiny/questions.json").read_text(encoding="utf-8"))["questions"]
    lines = [m["content"] for q in questions for m in q["messages"]] + [q["answer"] for q in questions]
    lines += ["déjà vu in the café, mañana über Größe", "日本語 と 中文 の テキスト", "Привет, мир и тест"] * 8
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, model_type="bpe", vocab_size=800, byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False,
        add_dummy_prefix=True, pad_id=0, eos_id=1, bos_id=2, unk_id=3, control_symbols=TURNS,
        user_defined_symbols=USER, split_by_whitespace=False, num_threads=1, minloglevel=2)
    proto = pb.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def texts():
    given = json.loads((HERE / "dg-mini.cases.json").read_text(encoding="utf-8"))["cases"]
    out = [c["text"] for c in given]
    rng = random.Random(7)
    alphabet = [chr(c) for c in range(32, 127)] + list("  \n\t▁éèñüß日本語中文ПриветΩ\u0301\u200b🙂👩") + [
        " the", " of", " is", "What", "capital", "  ", "ing"]
    out += ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))) for _ in range(120)]
    return out


def cases(proto, prefix, unused):
    proto = pb.ModelProto.FromString(proto.SerializeToString())
    proto.normalizer_spec.add_dummy_prefix = prefix
    for i in unused:
        proto.pieces[i].type = pb.ModelProto.SentencePiece.UNUSED
    sp = spm.SentencePieceProcessor(model_proto=proto.SerializeToString())
    # Behind a user-defined token the library puts no space, llama.cpp does: they are compared without prefix.
    used = [t for t in texts() if not (prefix and any(u in t for u in USER))]
    if not prefix:
        used += ["<code>x</code>", "a <code> b</code>c", "<code></code>"]
    return {"add_space_prefix": prefix, "unused": unused,
            "cases": [{"text": t, "ids": sp.encode(t)} for t in used]}


if __name__ == "__main__":
    proto = train()
    pieces = proto.pieces
    vocab = {"model": "llama", "tokens": [p.piece for p in pieces], "types": [p.type for p in pieces],
             "scores": [p.score for p in pieces], "bos": 2, "eos": 1, "unknown": 3, "pad": 0}
    learned = [i for i, p in enumerate(pieces) if p.type == 1 and len(p.piece) > 2]
    variants = [cases(proto, True, []), cases(proto, False, []), cases(proto, False, learned[::UNUSED_EVERY])]
    for name, data in (("vocab", vocab), ("cases", {"variants": variants})):
        with open(HERE / f"spm.{name}.json", "w", encoding="utf-8") as f:
            json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
            f.write("\n")
