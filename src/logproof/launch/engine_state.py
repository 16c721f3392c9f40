"""What a recorded engine does now."""

from __future__ import annotations

from typing import Literal

from logproof.launch.health import answers
from logproof.launch.processes import is_alive
from logproof.launch.running_engines import is_gone
from logproof.launch.spec import LocalEngine

EngineState = Literal["starting", "ready", "no answer", "dead", "dead, workers left"]


def engine_state(engine: LocalEngine) -> EngineState:
    """Look at its processes, and ask it for an answer if they run: ready, if it answered before and does now."""
    if is_gone(engine):
        return "dead"
    if not is_alive(engine.leader):
        return "dead, workers left"
    if answers(engine.port):
        return "ready" if engine.ready else "starting"
    return "no answer" if engine.ready else "starting"
