"""One HTML page of a stored run: scores, and the logprob of every token of some prompts and completions.

Self-contained: no script, no font, no address of anything. Every text from outside is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape
from itertools import islice
from pathlib import Path

from logproof.eval.report.compare import shown_prompt
from logproof.eval.report.report import Report, table_rows
from logproof.eval.score.stored_calls import request_of, response_of
from logproof.files import write_atomic
from logproof.ir.response import Tokens
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, SampleRecord

MAX_TOKENS = 4000
"""Most tokens that one prompt or completion shows."""

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1c1c22}
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.2rem .8rem;text-align:left;border-bottom:1px solid #ddd}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.tokens{white-space:pre-wrap;font:13px/2 ui-monospace,monospace;background:#fafafa;padding:.6rem}
.tokens span{padding:.15rem 0;border-radius:2px}.span{border-bottom:2px solid #3a5bd9}
.plain{white-space:pre-wrap;font:13px/1.6 ui-monospace,monospace;color:#555}.s{color:#555}h3{margin-bottom:.2rem}
"""


def page(report: Report, reader: StoreReader, prompts: int = 2) -> str:
    """The page of a run. prompts: samples shown of each task. Raises StoreError for a damaged store."""
    body = [
        f"<h1>{escape(report.model)} over {escape(report.dialect)}</h1>",
        f'<p class="s">{escape(", ".join(report.endpoints))}; {escape(_versions(report))}</p>',
        *(f"<p><strong>suspect:</strong> {escape(reason)}</p>" for reason in report.suspect),
        _scores(report),
        "<p>Each token is shaded by its logprob: white is certain, red is 8 nat or worse; hover for the figures. "
        "Underlined tokens are the scored span.</p>",
    ]
    for tally in report.tasks:
        body.append(f"<h2>{escape(tally.task)}</h2>")
        for sample in islice(reader.samples(tally.task), prompts):
            body += _sample(sample, reader.calls(sample.key))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>logproof report</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def write(report: Report, reader: StoreReader, path: Path, prompts: int = 2) -> None:
    """Write the page. Raises StoreError."""
    write_atomic(path, page(report, reader, prompts).encode("utf-8", "replace"))


def _versions(report: Report) -> str:
    return ", ".join(f"{name} {version}" for name, version in report.versions.items())


def _scores(report: Report) -> str:
    head = "".join(f"<th>{name}</th>" for name in ("task", "metric", "value ± standard error", "rows", "failed", ""))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{' class=n' if i in (2, 3, 4) else ''}>{escape(c)}</td>" for i, c in enumerate(row))
        + "</tr>"
        for row in table_rows(report)
    )
    return f"<table><tr>{head}</tr>{rows}</table><p class=s>{escape(report.denominators)}.</p>"


def _sample(sample: SampleRecord, calls: Iterable[CallRecord]) -> Iterator[str]:
    scores = ", ".join(f"{name} {value}" for name, value in sample.scores.items())
    summary = f"right: {sample.gold}; {scores or sample.reason}"
    yield f"<h3>{escape(sample.row_id)}</h3><p class=s>{escape(summary)}</p>"
    for call in calls:
        if call.status == "ok":
            yield from _call(sample, call)


def _call(sample: SampleRecord, call: CallRecord) -> Iterator[str]:
    request, response = request_of(call), response_of(call)
    yield f"<p>{escape(call.part)}{_is_right(sample, call.part)}</p>"
    if response.prompt is not None:
        yield _tokens(response.prompt, _start(sample, call.part))
    else:
        yield f'<div class="plain">{escape(shown_prompt(request)[-MAX_TOKENS:])}</div>'
    for choice in response.choices if response.prompt is None else ():
        if choice.labels is not None:
            continue
        shown = _tokens(choice.tokens, 0) if choice.tokens is not None else ""
        yield shown or f'<div class="tokens">{escape(choice.text)}</div>'
    labels = sample.output.get("labels") if isinstance(sample.output, dict) else None
    if isinstance(labels, dict):
        cells = "".join(f"<td>{escape(k)}: {_figure(v)}</td>" for k, v in labels.items())
        yield f"<table><tr>{cells}</tr></table>"


def _is_right(sample: SampleRecord, part: str) -> str:
    return " (the right one)" if part == f"option {sample.gold}" else ""


def _start(sample: SampleRecord, part: str) -> int | None:
    """Index of the first token of the scored span."""
    output = sample.output if isinstance(sample.output, dict) else {}
    if part.startswith("neutral"):
        output = output.get("neutral") or {}
    span = output.get("span")
    return span.get("start") if isinstance(span, dict) else None


def _tokens(tokens: Tokens, start: int | None) -> str:
    count = min(len(tokens), MAX_TOKENS)
    cut = f" … {len(tokens) - count} more" if count < len(tokens) else ""
    return f'<div class="tokens">{"".join(_token(tokens, i, start) for i in range(count))}{cut}</div>'


def _token(tokens: Tokens, i: int, start: int | None) -> str:
    value = float(tokens.logprobs[i])
    text = tokens.texts[i] if tokens.texts is not None else None
    token_id = int(tokens.ids[i]) if tokens.ids is not None else None
    shown = text if text is not None else f"[{token_id}]"
    rank = int(tokens.ranks[i]) if tokens.ranks is not None else 0
    figures = [
        f"id {token_id}" if token_id is not None else "",
        f"logprob {_figure(value)}",
        f"rank {rank}" if rank else "",
    ]
    title = ", ".join(f for f in figures if f)
    kind = ' class="span"' if start is not None and i >= start else ""
    return f'<span{kind} style="background:{_shade(value)}" title="{escape(title)}">{escape(shown)}</span>'


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
