"""Tables that the access commands print."""

from __future__ import annotations

import math

from rich.markup import escape
from rich.table import Table

from logproof.ir.facts import Facts
from logproof.ir.response import Tokens, TopK


def token_table(tokens: Tokens, title: str) -> Table:
    """One row a token: position, id, text, logprob, rank, and its rivals where they came."""
    table = Table(title=escape(title), title_justify="left", show_edge=False, pad_edge=False)
    for name, right in (("#", True), ("id", True), ("token", False), ("logprob", True), ("rank", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    if tokens.top is not None:
        table.add_column("best")
    for i, value in enumerate(tokens.logprobs.tolist()):
        row = [
            str(i),
            str(tokens.ids[i]) if tokens.ids is not None else "",
            _text(tokens.texts[i]) if tokens.texts is not None else "",
            "" if math.isnan(value) else f"{value:.4f}",
            str(tokens.ranks[i]) if tokens.ranks is not None and tokens.ranks[i] else "",
        ]
        table.add_row(*row, *([_rivals(tokens.top, i)] if tokens.top is not None else []))
    return table


def facts_table(url: str, facts: Facts, dialects: tuple[str, ...]) -> Table:
    """What a probe found, with the source of each fact."""
    table = Table(title=escape(url), title_justify="left", show_edge=False, pad_edge=False)
    for name in ("fact", "value", "source"):
        table.add_column(name)
    rows = {
        "engine": facts.engine,
        "version": facts.version,
        "models": ", ".join(facts.models),
        "model_root": facts.model_root,
        "max_model_len": facts.max_model_len,
        "max_logprobs": facts.max_logprobs,
        "vocab_size": facts.vocab_size,
        "logprobs_mode": facts.logprobs_mode,
        "tokenizer": facts.tokenizer or None,
        "routes": len(facts.routes) or None,
        "fields": ", ".join(f"{r} {len(f)}" for r, f in facts.fields.items() if r.startswith("/v1/c")) or None,
    }
    for name, value in rows.items():
        table.add_row(name, escape(str(value)) if value else "unknown", escape(facts.sources.get(name, "")))
    table.add_row("plugin", _plugin(facts), escape(facts.sources.get("plugin", "")))
    table.add_row("dialects", ", ".join(dialects) or "unknown", "the engine")
    table.add_row("best for scoring", dialects[0] if dialects else "unknown", "")
    return table


def _plugin(facts: Facts) -> str:
    if facts.plugin is None:
        return "none"
    on = [name for name in ("enforced_replay", "logprobs_mode") if getattr(facts.plugin, name)]
    state = ", ".join(on) or f"off: {facts.plugin.reason}"
    return escape(f"logproof-vllm {facts.plugin.version}: {state}")


def _text(text: str | None) -> str:
    return escape(repr(text)) if text is not None else "?"


def _rivals(top: TopK, position: int) -> str:
    span = top.span(position)
    cells = []
    for j in range(span.start, span.stop):
        name = _text(top.texts[j]) if top.texts is not None else str(top.ids[j] if top.ids is not None else "?")
        cells.append(f"{name} {top.logprobs[j]:.3f}")
    return "  ".join(cells)
