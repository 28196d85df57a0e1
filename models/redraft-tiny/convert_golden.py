"""Turns the output of golden.py into the test data of the engine.

  python convert_golden.py golden_generate.json ../../testdata/redraft-tiny

Writes
  generate.json            all prompts: ids, the ids generated, the text, canvases and steps
  traj-N.safetensors       one per recorded trajectory, in the form of the oracle's trajectory cases:
    per denoising step     canvas_index, step_left, n_prefix, temperature, canvas_in, entropy, mean_entropy, denoiser,
                           accepted, renoise, canvas_out, argmax, stop
    per canvas             init_canvas
    once                   prompt_ids, sequence (prompt and committed canvases, padded after the end token)
    metadata               case, model, text, reference, and `config` (JSON: sampler settings and end tokens)
There is no `u`: the golden records which token was drawn (`denoiser`), not the number it was drawn with.
Needs numpy only.  The same input always gives the same bytes.
"""
import argparse
import json
import os
import struct

import numpy as np

import dataset as D

DT = {"float32": "F32", "int32": "I32", "uint8": "U8"}


def save(path, tensors, metadata):
    """A .safetensors file with sorted names and metadata; wide types first, so that everything is aligned."""
    head, blobs, off = {"__metadata__": {k: metadata[k] for k in sorted(metadata)}}, [], 0
    for k in sorted(tensors, key=lambda k: (-tensors[k].itemsize, k)):
        b = np.ascontiguousarray(tensors[k]).tobytes()
        head[k] = {"dtype": DT[tensors[k].dtype.name], "shape": list(tensors[k].shape), "data_offsets": [off, off + len(b)]}
        blobs.append(b)
        off += len(b)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def config(g):
    s = g["sampler"]
    return {"max_steps": s["max_denoising_steps"], **{k: s[k] for k in ("t_min", "t_max", "entropy_bound", "stability_threshold",
                                                                       "confidence_threshold")}, "eos": g["eos_token_ids"]}


def temperature(cfg, left):
    """Rounded in the same places as the reference: the fraction and the result are float32."""
    f = np.float32
    return f(cfg["t_min"]) + f(cfg["t_max"] - cfg["t_min"]) * (f(left) / f(cfg["max_steps"]))


def commit(canvas, eos, pad):
    """What a finished canvas adds to the sequence, and whether the text ends there."""
    end = next((i for i, t in enumerate(canvas) if t in eos), None)
    return (canvas, False) if end is None else (canvas[:end + 1] + [pad] * (len(canvas) - end - 1), True)


def trajectory(item, cfg, pad):
    rows = {k: [] for k in ("canvas_index", "step_left", "n_prefix", "temperature", "canvas_in", "entropy", "mean_entropy",
                            "denoiser", "accepted", "renoise", "canvas_out", "argmax", "stop")}
    seq, over = list(item["prompt_ids"]), False
    for n, block in enumerate(item["trajectory"]):
        assert not over, "a canvas after the end token"
        canvas = block["initial_canvas"]
        for s in block["steps"]:
            out = [d if a else r for a, d, r in zip(s["accepted"], s["sampled_canvas"], s["renoise_canvas"])]
            new = dict(canvas_index=n, step_left=s["cur_step"], n_prefix=len(seq), temperature=temperature(cfg, s["cur_step"]),
                       canvas_in=canvas, entropy=s["entropy"], mean_entropy=s["mean_entropy"], denoiser=s["sampled_canvas"],
                       accepted=s["accepted"], renoise=s["renoise_canvas"], canvas_out=out, argmax=s["argmax_canvas"],
                       stop=int(s["stop"]))
            for k, v in new.items():
                rows[k].append(v)
            canvas = out
        add, over = commit(block["steps"][-1]["argmax_canvas"], cfg["eos"], pad)
        seq += add
    assert seq == item["prompt_ids"] + item["generated_ids"]
    kind = {"temperature": np.float32, "entropy": np.float32, "mean_entropy": np.float32, "accepted": np.uint8}
    t = {k: np.asarray(v, kind.get(k, np.int32)) for k, v in rows.items()}
    t["init_canvas"] = np.asarray([b["initial_canvas"] for b in item["trajectory"]], np.int32)
    t["prompt_ids"] = np.asarray(item["prompt_ids"], np.int32)
    t["sequence"] = np.asarray(seq, np.int32)
    return t


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("golden")
    a.add_argument("out")
    a.add_argument("--model", default="redraft-tiny-bf16.gguf", help="file name to record")
    a = a.parse_args()
    with open(a.golden, encoding="utf-8") as f:
        g = json.load(f)
    cfg, reference = config(g), g["reference"]
    items, n = [], 0
    for item in g["prompts"]:
        keep = {k: item[k] for k in ("prompt", "prompt_ids", "generated_ids", "text", "canvases", "steps")}
        if "trajectory" in item:
            steps = [s for b in item["trajectory"] for s in b["steps"]]
            keep["trajectory"] = f"traj-{n}.safetensors"
            # how close the run came to another decision, at its closest step
            keep["accept_margin"] = min(s["accept_margin"] for s in steps)
            keep["argmax_margin"] = min(s["argmax_margin"] for s in steps)
            # [position][rank] = [token, raw logit] of the very first canvas pass
            keep["first_step_raw_top5"] = item["first_step_raw_top5"]
            text = D.render([{"role": "user", "content": item["prompt"]}])
            save(os.path.join(a.out, keep["trajectory"]), trajectory(item, cfg, g["pad_token_id"]),
                 {"case": f"traj-{n}", "config": json.dumps(cfg), "model": a.model, "reference": reference, "text": text})
            n += 1
        items.append(keep)
    head = {"model": a.model, "reference": reference, "license": "CC0-1.0", "config": cfg, "canvas_length": g["canvas_length"],
            "pad_token_id": g["pad_token_id"], "max_tokens": 96}
    rows = ",\n".join(json.dumps(i, separators=(",", ":")) for i in items)
    with open(os.path.join(a.out, "generate.json"), "w", encoding="utf-8", newline="\n") as f:
        f.write(json.dumps(head, separators=(",", ":"))[:-1] + ',"prompts":[\n' + rows + "\n]}\n")
    print(f"wrote {len(items)} prompts and {n} trajectories to {a.out}")


if __name__ == "__main__":
    main()
