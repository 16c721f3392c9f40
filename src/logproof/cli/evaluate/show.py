"""`logproof show`: one run, or one sample with its calls, also while the run goes on."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli.evaluate.run_options import RunDir
from logproof.cli.options import AsJson
from logproof.cli.printing import local_time, note, out, print_json
from logproof.errors import StoreError
from logproof.store.records import RunSummary
from logproof.store.run_views import RunView, SampleView, view_run, view_sample

MAX_FAILURES = 20


def show(
    run: RunDir,
    sample: Annotated[str | None, typer.Option(help="Show this sample: its key or the beginning of it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: its provenance, counts and failures; or one sample with its calls."""
    view = view_run(run) if sample is None else view_sample(run, sample)
    if as_json:
        print_json(view)
    elif isinstance(view, RunView):
        _show_run(view)
    else:
        _show_sample(view)


def _show_run(view: RunView) -> None:
    summary = view.run.summary
    if summary is None:
        raise StoreError(view.run.error or f"cannot read {view.run.path}")
    _pairs(_head(view, summary))
    table = Table("task", "ok", "failed", "planned", box=None, pad_edge=False)
    for count in summary.tasks:
        planned = "" if count.planned is None else str(count.planned)
        table.add_row(escape(count.task), str(count.ok), str(count.failed), planned)
    out.print(table)
    for key, reason in list(view.failures.items())[:MAX_FAILURES]:
        out.print(f"failed {key[:12]}: {reason}", markup=False)
    if len(view.failures) > MAX_FAILURES:
        note(f"and {len(view.failures) - MAX_FAILURES} more failures; --json lists all")


def _head(view: RunView, summary: RunSummary) -> dict[str, str]:
    plain = msgspec.to_builtins(view.provenance)
    chosen = {name: plain[name] for name in ("model", "config", "scheduling", "versions", "datasets") if plain[name]}
    return {
        "run": f"{view.run.path} ({view.run.state})",
        "begun": f"{local_time(summary.created)}, {len(view.sessions)} session(s)",
        "endpoints": ", ".join(sorted({url for session in view.sessions for url in session.endpoints})),
        "fingerprints": ", ".join(f"{name} ({count} calls)" for name, count in summary.fingerprints.items()) or "none",
        "calls": f"{summary.calls_ok} ok, {summary.calls_failed} failed",
        "scorers": ", ".join(f"{scorer.name} ({scorer.digest[:12]})" for scorer in summary.scorers) or "none",
    } | {name: _compact(value) for name, value in chosen.items()}


def _pairs(pairs: dict[str, str]) -> None:
    for name, value in pairs.items():
        out.print(f"{name:<13}{value}", markup=False)


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _show_sample(view: SampleView) -> None:
    sample = view.sample
    _pairs(
        {
            "sample": sample.key,
            "row": f"{sample.row_id} (row {sample.index} of {sample.task}, repeat {sample.repeat})",
            "status": sample.status if sample.reason is None else f"{sample.status}: {sample.reason}",
            "scores": _compact(sample.scores),
            "gold": _compact(sample.gold),
            "output": _compact(sample.output),
        }
    )
    for call in view.calls:
        error = "" if call.error is None else f" {call.error_type}: {call.error}"
        wide = f", columns {', '.join(call.columns)}" if call.columns else ""
        what = f"{call.dialect} {call.status}{error}, {call.attempts} attempt(s), {call.seconds:.3f} s{wide}"
        out.print(f"call {call.key[:12]} {call.part}: {what}", markup=False)
        out.print(f"  request  {_compact(call.request)}", markup=False)
        out.print(f"  response {_compact(call.response)}", markup=False)
