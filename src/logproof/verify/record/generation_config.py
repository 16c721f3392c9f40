"""What an operator states about an engine's defaults as a whole: vLLM's own, or a generation_config.json."""

from __future__ import annotations

from pathlib import Path

from logproof.files import naming, read_bounded
from logproof.verify.record.defaults import Defaults, neutral, of_config


def config_defaults(statement: str | None) -> Defaults:
    """The defaults behind a statement: `vllm` for the engine's own, else a file or its folder; None states nothing.

    Raises UsageError for a file that is no generation config or cannot be read.
    """
    if statement is None:
        return Defaults()
    if statement == "vllm":
        return neutral()
    path = Path(statement)
    path = path / "generation_config.json" if path.is_dir() else path
    with naming(path):
        return of_config(read_bounded(path, 1 << 20))
