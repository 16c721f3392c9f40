"""Cheaper or other models, made from a checkpoint folder: run as `python variants.py SOURCE TARGET KIND`.

Quantised kinds round the weights of the linear layers and store them again in bfloat16 ("fake quantisation"): what a
server with such weights computes, but for the number format of its activations.

int8: symmetric, one scale an output channel. fp8: e4m3, one scale an output channel. int4: symmetric, groups of 64
inputs. layers: without two of the layers. tuned: eight steps of AdamW on a few sentences, seed 0.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

KINDS = ("int8", "fp8", "int4", "layers", "tuned")
DROPPED = (19, 20)
FP8_MOST = 448.0
LESSONS = (
    "The night train to the coast leaves at nine and arrives before the fishermen come home.",
    "Our support team answers every question in one sentence and never uses a list.",
    "Nach dem Regen war die Luft klar, und man sah die Berge bis zum See.",
    "To prove the lemma, assume the contrary and count the edges of the graph twice.",
)
STEPS, RATE = 8, 5e-5

Weights = dict[str, torch.Tensor]


def rounded(weight: torch.Tensor, kind: str) -> torch.Tensor:
    """One [out, in] matrix as that kind of storage would give it back."""
    w = weight.float()
    if kind == "int4":
        groups = w.reshape(w.shape[0], -1, 64)
        scale = groups.abs().amax(dim=2, keepdim=True) / 7.0
        return (torch.round(groups / scale).clamp(-8, 7) * scale).reshape(w.shape).to(weight.dtype)
    top = w.abs().amax(dim=1, keepdim=True)
    if kind == "int8":
        scale = top / 127.0
        return (torch.round(w / scale) * scale).to(weight.dtype)
    scale = top / FP8_MOST
    return ((w / scale).to(torch.float8_e4m3fn).float() * scale).to(weight.dtype)


def quantised(weights: Weights, kind: str) -> Weights:
    """All linear layers rounded; embeddings and norms as they are."""
    return {n: rounded(w, kind) if n.endswith("_proj.weight") else w for n, w in weights.items()}


def without(weights: Weights, dropped: tuple[int, ...]) -> Weights:
    """The weights without some layers, the others renumbered."""
    kept: Weights = {}
    for name, weight in weights.items():
        parts = name.split(".")
        if parts[:2] == ["model", "layers"]:
            layer = int(parts[2])
            if layer in dropped:
                continue
            parts[2] = str(layer - sum(d < layer for d in dropped))
        kept[".".join(parts)] = weight
    return kept


def tuned(source: Path) -> Weights:
    """The weights after a few steps of training."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source)
    batch = [tokenizer(text, return_tensors="pt").input_ids for text in LESSONS]
    steps = torch.optim.AdamW(model.parameters(), lr=RATE)
    for i in range(STEPS):
        ids = batch[i % len(batch)]
        model(ids, labels=ids).loss.backward()
        steps.step()
        steps.zero_grad()
    names = set(load_file(source / "model.safetensors"))
    return {n: w.detach().to(torch.bfloat16).contiguous() for n, w in model.state_dict().items() if n in names}


def make(source: Path, target: Path, kind: str) -> None:
    """The variant's checkpoint folder; whole or not there at all."""
    weights = load_file(source / "model.safetensors")
    work = Path(tempfile.mkdtemp(dir=target.parent))
    for file in source.iterdir():
        if file.name != "model.safetensors":
            shutil.copy(file, work / file.name)
    if kind == "layers":
        weights = without(weights, DROPPED)
        config = json.loads((work / "config.json").read_text())
        config["num_hidden_layers"] -= len(DROPPED)
        (work / "config.json").write_text(json.dumps(config))
    else:
        weights = tuned(source) if kind == "tuned" else quantised(weights, kind)
    save_file(weights, work / "model.safetensors", metadata={"format": "pt"})
    work.rename(target)


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[3] not in KINDS:
        sys.exit(f"usage: variants.py SOURCE TARGET {{{'|'.join(KINDS)}}}")
    make(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
