"""Turn a GGUF file into a model folder that engines load. Run as a script by `small_model`, never imported.

It is a process of its own because it needs transformers, which `logproof` itself must not load. The engine's
interpreter runs it: `python convert_gguf.py FILE.gguf FOLDER`. It writes the tokenizer, and the weights as bfloat16
safetensors with every layer dequantised, so the folder is a plain checkpoint with no trace of the quantisation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert(source: Path, target: Path) -> None:
    """Write a checkpoint folder at `target` from the GGUF file `source`."""
    folder = str(source.parent)
    AutoTokenizer.from_pretrained(folder, gguf_file=source.name).save_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=source.name, quantization_config=GgufConfig(dequantize=True), dtype="bfloat16"
    )
    model.save_pretrained(target)
    config = target / "config.json"
    fields = json.loads(config.read_text(encoding="utf-8"))
    # The weights are plain now; with this entry an engine would look for quantised ones.
    fields.pop("quantization_config", None)
    config.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
