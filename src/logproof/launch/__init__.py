"""Local engines: an `EngineSpec` goes in; a vLLM or SGLang that answers comes out, recorded so that it can be stopped.

with running_engine(EngineSpec(dtype="float32")) as engine:
    ...  # engine.url, engine.served_name
"""

from __future__ import annotations

from logproof.launch.health import StartFailed
from logproof.launch.spec import EngineSpec, LocalEngine
from logproof.launch.start import list_engines, running_engine, start_engine, stop_engine

__all__ = ["EngineSpec", "LocalEngine", "StartFailed", "list_engines", "running_engine", "start_engine", "stop_engine"]
