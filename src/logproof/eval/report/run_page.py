"""One HTML page of a stored run: scores, and the logprob of every token of some prompts and completions.

This file chooses what is shown, as plain data; how, templates/run.html of pages says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from logproof.eval.report.compare import shown_prompt
from logproof.eval.report.report import Report, table_rows
from logproof.eval.score.stored_calls import request_of, response_of
from logproof.files import write_atomic
from logproof.ir.response import Tokens
from logproof.pages import render
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, SampleRecord

MAX_TOKENS = 4000
"""Most tokens that one prompt or completion shows."""

Shown = dict[str, object]
"""Plain data of a part of the page, by the names that the template uses."""


def page(report: Report, reader: StoreReader, prompts: int = 2) -> str:
    """The page of a run. prompts: samples shown of each task. Raises StoreError for a damaged store."""
    return render(
        "run.html",
        title="logproof report",
        model=report.model,
        dialect=report.dialect,
        endpoints=", ".join(report.endpoints),
        versions=", ".join(f"{name} {version}" for name, version in report.versions.items()),
        suspect=report.suspect,
        rows=table_rows(report),
        denominators=report.denominators,
        tasks=[{"name": t.task, "samples": list(_samples(reader, t.task, prompts))} for t in report.tasks],
    )


def write(report: Report, reader: StoreReader, path: Path, prompts: int = 2) -> None:
    """Write the page. Raises StoreError."""
    write_atomic(path, page(report, reader, prompts).encode("utf-8", "replace"))


def _samples(reader: StoreReader, task: str, prompts: int) -> Iterator[Shown]:
    for sample in islice(reader.samples(task), prompts):
        yield {
            "row": sample.row_id,
            "gold": sample.gold,
            "scores": ", ".join(f"{name} {value}" for name, value in sample.scores.items()) or sample.reason,
            "replies": [_reply(sample, call) for call in reader.calls(sample.key) if call.status == "ok"],
        }


def _reply(sample: SampleRecord, call: CallRecord) -> Shown:
    """One call: its scored prompt token by token, else the prompt's text and what was generated."""
    response = response_of(call)
    prompt = response.prompt
    choices = [c for c in response.choices if c.labels is None] if prompt is None else []
    labels = sample.output.get("labels") if isinstance(sample.output, dict) else None
    return {
        "part": call.part,
        "right": call.part == f"option {sample.gold}",
        "prompt": _tokens(prompt, _start(sample, call.part)) if prompt is not None else None,
        "prompt_text": shown_prompt(request_of(call))[-MAX_TOKENS:] if prompt is None else "",
        "choices": [
            {"tokens": _tokens(c.tokens, 0) if c.tokens is not None else None, "text": c.text} for c in choices
        ],
        "labels": [(k, _figure(v)) for k, v in labels.items()] if isinstance(labels, dict) else [],
    }


def _start(sample: SampleRecord, part: str) -> int | None:
    """Index of the first token of the scored span."""
    output = sample.output if isinstance(sample.output, dict) else {}
    if part.startswith("neutral"):
        output = output.get("neutral") or {}
    span = output.get("span")
    return span.get("start") if isinstance(span, dict) else None


def _tokens(tokens: Tokens, start: int | None) -> Shown:
    count = min(len(tokens), MAX_TOKENS)
    return {"tokens": [_token(tokens, i, start) for i in range(count)], "more": len(tokens) - count}


def _token(tokens: Tokens, i: int, start: int | None) -> Shown:
    value = float(tokens.logprobs[i])
    text = tokens.texts[i] if tokens.texts is not None else None
    token_id = int(tokens.ids[i]) if tokens.ids is not None else None
    rank = int(tokens.ranks[i]) if tokens.ranks is not None else 0
    figures = [
        f"id {token_id}" if token_id is not None else "",
        f"logprob {_figure(value)}",
        f"rank {rank}" if rank else "",
    ]
    return {
        "text": text if text is not None else f"[{token_id}]",
        "figures": ", ".join(f for f in figures if f),
        "shade": _shade(value),
        "scored": start is not None and i >= start,
    }


def _shade(value: float) -> str:
    """White at 0, red at -8 nat and below, grey where nothing is scored."""
    if math.isnan(value):
        return "#e8e8ee"
    share = min(max(-value / 8, 0.0), 1.0)
    return f"rgb(255,{round(255 - 150 * share)},{round(255 - 160 * share)})"


def _figure(value: object) -> str:
    if value is None:
        return "-inf"
    return f"{value:.4f}" if isinstance(value, float) and not math.isnan(value) else "not scored"
