#!/usr/bin/env python3
"""Hidden states and logits of a model of transformers, as `redraft diagnose` reads them (docs/diagnose.md).

    python3 scripts/hf_hidden_states.py DIR 20,31,57 OUT.safetensors [--dtype float32] [--bidirectional] [--trust-remote-code]

Needs torch, transformers and safetensors. DIR is a folder (or the name of a repository) with config and weights; the ids are those of one
pass. The file has `ids`, the embeddings (`inp_embd`), what each layer gives out (`l_out-N`), the normed end (`result_norm`: the last of
transformers' hidden states stands after the final norm, so the output of the last layer is taken where it leaves the layer) and `logits`.
"""
import argparse

import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForCausalLM


def load(args):
    options = dict(dtype=getattr(torch, args.dtype), trust_remote_code=args.trust_remote_code, attn_implementation="eager")
    try:
        return AutoModelForCausalLM.from_pretrained(args.model, **options).eval()
    except ValueError:  # models of other code name a class for AutoModel alone
        return AutoModel.from_pretrained(args.model, **options).eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("ids", type=lambda text: [int(i) for i in text.split(",")])
    parser.add_argument("out")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16", "float16"])
    parser.add_argument("--bidirectional", action="store_true", help="no causal mask, for models whose own code has none")
    parser.add_argument("--trust-remote-code", action="store_true")
    args = parser.parse_args()
    model = load(args)
    # The list of layers is the longest list of modules that are all of one class.
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len({type(x) for x in m}) == 1]
    layers = next(m for m in lists if len(m) == model.config.get_text_config().num_hidden_layers)
    found = {}

    def keep(name):
        def hook(_module, _inputs, output):
            found[name] = output[0] if isinstance(output, tuple) else output
        return hook

    for i, layer in enumerate(layers):
        layer.register_forward_hook(keep(f"l_out-{i}"))
    ids = torch.tensor([args.ids])
    options = {"output_hidden_states": True, "use_cache": False}
    if args.bidirectional:  # nothing is added to any score
        options["attention_mask"] = torch.zeros(1, 1, len(args.ids), len(args.ids), dtype=getattr(torch, args.dtype))
    with torch.no_grad():
        out = model(input_ids=ids, **options)
    found["inp_embd"], found["result_norm"], found["logits"] = out.hidden_states[0], out.hidden_states[-1], out.logits
    tensors = {name: x[0].contiguous().clone() for name, x in found.items()}
    save_file(tensors | {"ids": ids[0].int()}, args.out, metadata={"reference": f"transformers, {args.dtype}"})
    print(f"{args.out}: {len(found)} tensors of {len(args.ids)} positions")


if __name__ == "__main__":
    main()
