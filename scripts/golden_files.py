"""What the scripts that make goldens share: how models and tensors become files, the same bytes in every run."""
import json

import gguf
import numpy as np

KINDS = {np.dtype("f8"): "F64", np.dtype("f4"): "F32", np.dtype("i4"): "I32", np.dtype("u1"): "U8"}


def stored_as_f32(name, x):
    """Vectors and routers; all other weights are matrices in the type of the file."""
    return x.ndim == 1 or "gate_inp" in name


def finish_model(g, weights, kind):
    """Adds the weights (full name -> array) to a GGUFWriter that has its keys, and writes the file."""
    for name, x in weights.items():
        if stored_as_f32(name, x):
            g.add_tensor(name, x)
        else:
            g.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


def save(path, tensors, metadata, **style):
    """A safetensors file with keys in order, which that library does not promise of its metadata. Integers become I32.
    `style` is that of `json.dumps` for the header."""
    tensors = {n: x.astype(np.int32) if x.dtype.kind == "i" else x for n, x in tensors.items()}
    header, at, data = {"__metadata__": metadata}, 0, []
    # Larger elements first, so that all are aligned.
    for name in sorted(tensors, key=lambda n: (-tensors[n].itemsize, n)):
        x = tensors[name]
        header[name] = {"dtype": KINDS[x.dtype], "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
        data.append(np.ascontiguousarray(x).tobytes())
    head = json.dumps(header, **style).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(data))
