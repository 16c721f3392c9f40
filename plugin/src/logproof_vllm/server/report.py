"""What a reply says about the request that the plugin served, and how it gets into the reply's bytes.

The reply gains one top-level key ``logproof``; every other byte of the reply is the server's own. A streamed reply
gains one event with empty ``choices`` before ``[DONE]``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from logproof_vllm.canonical import GRAMMAR_UTILITY
from logproof_vllm.fields import FieldPlan, ModeChoice

DONE = b"data: [DONE]"

logger = logging.getLogger("vllm.logproof")


@dataclass
class Report:
    """Filled while the request is prepared; read when the reply is written.

    ``body_plan`` is what the body asked for; ``plan`` is set once the engine's parameters carry it.
    """

    body_plan: FieldPlan | None = None
    plan: FieldPlan | None = None
    mode: str = ""
    tag: str = ""
    grammar: bool = False

    def fill(self, plan: FieldPlan, default_mode: str, tag: str, grammar: bool) -> None:
        self.plan = plan
        self.mode = plan.mode.mode or default_mode
        self.tag = tag
        self.grammar = grammar
        if plan.mode.source == "inferred":
            logger.info("logprobs_mode %s inferred from %s", self.mode, dict(plan.mode.evidence))


CURRENT: ContextVar[Report | None] = ContextVar("logproof_report", default=None)


async def fetch_off_at(engine: Any, tag: str) -> int | None:
    """Ask every engine core behind `engine` (an ``AsyncLLM``) whether request `tag` lost its grammar."""
    client = engine.engine_core
    answers = [await client._call_utility_async(GRAMMAR_UTILITY, tag, engine=core) for core in client.core_engines]
    return next((position for position in answers if position is not None), None)


def body(report: Report, grammar_off_at: int | None) -> dict[str, object]:
    """The value of the reply's ``logproof`` key."""
    plan = report.plan or FieldPlan((), ModeChoice(None, "deployment"))
    grammar: object = None
    if report.grammar and plan.ids:
        grammar = "kept" if grammar_off_at is None else {"off_at": grammar_off_at}
    return {
        "enforced": len(plan.ids),
        "eos_appended": plan.eos_appended,
        "logprobs_mode": report.mode,
        "mode_source": plan.mode.source,
        "mode_evidence": dict(plan.mode.evidence),
        "grammar": grammar,
    }


def into_json(reply: bytes, value: Mapping[str, object]) -> bytes:
    """Add the key ``logproof`` to a JSON object given as bytes, leaving its other bytes as they are."""
    end = reply.rstrip()
    if not end.startswith(b"{") or not end.endswith(b"}"):
        return reply
    comma = b"" if end[1:-1].strip() == b"" else b","
    return end[:-1] + comma + b'"logproof":' + _dump(value) + b"}"


def event(last: bytes, value: Mapping[str, object]) -> bytes:
    """A server-sent event that carries `value`, named like `last`, the JSON of the stream's latest event."""
    try:
        latest = json.loads(last)
    except ValueError:
        latest = {}
    named = {key: latest[key] for key in ("id", "object", "created", "model") if key in latest}
    return b"data: " + _dump({**named, "choices": [], "logproof": dict(value)}) + b"\n\n"


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
