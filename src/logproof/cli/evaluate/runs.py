"""`logproof runs`, `show` and `export`: what is stored, also while a run goes on."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Column
from rich.table import Table as Grid

from logproof.cli.printing import out, print_json, remark
from logproof.errors import StoreError, UsageError
from logproof.store import export as exporting
from logproof.store.catalog import RunInfo, describe, find_runs
from logproof.store.reader import StoreReader
from logproof.store.records import CallRecord, RunProvenance, RunSummary, SampleRecord, WriteSession

MAX_FAILURES = 20
HEADINGS = ("run", "state", "begun", "samples", "failed", "tasks")


class TableName(StrEnum):
    """What can be exported."""

    samples = "samples"
    calls = "calls"


class FormatName(StrEnum):
    """How it can be exported."""

    jsonl = "jsonl"
    parquet = "parquet"


RunPath = Annotated[Path, typer.Argument(help="Directory of the run.", metavar="RUN")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """What `show --json` prints of a run."""

    run: RunInfo
    provenance: RunProvenance
    sessions: list[WriteSession]
    failures: dict[str, str]


class SampleView(msgspec.Struct, frozen=True, kw_only=True):
    """What `show --sample --json` prints."""

    sample: SampleRecord
    calls: list[CallRecord]


def runs(
    directory: Annotated[Path, typer.Argument(help="Where to look, three directories deep.")] = Path(),
    json: Json = False,
) -> None:
    """List the runs in a directory, oldest first."""
    found = find_runs(directory)
    if json:
        print_json(found)
        return
    if not found:
        remark(f"no runs in {directory}")
        return
    grid = Grid(*(Column(name, overflow="fold") for name in HEADINGS), box=None, pad_edge=False)
    for info in found:
        path = str(Path(info.path).relative_to(directory))
        grid.add_row(escape(path), info.state, *map(escape, _columns(info)))
    out.print(grid)


def show(
    run: RunPath,
    sample: Annotated[str | None, typer.Option(help="Show this sample: its key or the beginning of it.")] = None,
    json: Json = False,
) -> None:
    """Show one run: its provenance, counts and failures; or one sample with its calls."""
    with StoreReader(run) as reader:
        if sample is not None:
            _show_sample(_sample_view(reader, sample), json)
            return
        view = RunView(
            run=describe(run), provenance=reader.provenance, sessions=reader.sessions(), failures=reader.failed()
        )
    if json:
        print_json(view)
    else:
        _show_run(view)


def export(
    run: RunPath,
    to: Annotated[Path, typer.Argument(help="File to write; - is standard output (jsonl).", metavar="FILE")],
    table: Annotated[TableName, typer.Option(help="Which records.")] = TableName.samples,
    form: Annotated[
        FormatName | None, typer.Option("--format", help="How they are written; else .parquet tells, or jsonl.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="Only samples of this task.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Scores of this later scorer, by digest.")] = None,
    columns: Annotated[bool, typer.Option("--columns", help="With the wide channels of calls.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a file that is there.")] = False,
) -> None:
    """Write samples or calls of a run as JSON lines or Parquet."""
    form = form or (FormatName.parquet if to.suffix == ".parquet" else FormatName.jsonl)
    with StoreReader(run) as reader:
        rows = exporting.records(reader, table.value, task=task, scorer=scorer, columns=columns)
        if str(to) != "-":
            count = exporting.export(rows, table.value, to, form.value, replace=replace)
            remark(f"{count} {table.value} written to {to}")
        elif form is FormatName.jsonl:
            exporting.write_jsonl(rows, sys.stdout.buffer, table.value)
        else:
            raise UsageError("Parquet does not go to standard output", hint="name a file")


def _columns(info: RunInfo) -> tuple[str, str, str, str]:
    if info.summary is None:
        return "", "", "", info.error or ""
    tasks = info.summary.tasks
    counts = _share(sum(t.ok for t in tasks), [t.planned for t in tasks])
    return _when(info.summary.created), counts, str(sum(t.failed for t in tasks)), ", ".join(t.task for t in tasks)


def _share(ok: int, planned: list[int | None]) -> str:
    known = [number for number in planned if number is not None]
    return f"{ok} of {sum(known)}" if known and len(known) == len(planned) else str(ok)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _show_run(view: RunView) -> None:
    summary = view.run.summary
    if summary is None:
        raise StoreError(view.run.error or f"cannot read {view.run.path}")
    _pairs(_head(view, summary))
    grid = Grid("task", "ok", "failed", "planned", box=None, pad_edge=False)
    for count in summary.tasks:
        planned = "" if count.planned is None else str(count.planned)
        grid.add_row(escape(count.task), str(count.ok), str(count.failed), planned)
    out.print(grid)
    for key, reason in list(view.failures.items())[:MAX_FAILURES]:
        out.print(f"failed {key[:12]}: {reason}", markup=False)
    if len(view.failures) > MAX_FAILURES:
        remark(f"and {len(view.failures) - MAX_FAILURES} more failures; --json lists all")


def _head(view: RunView, summary: RunSummary) -> dict[str, str]:
    plain = msgspec.to_builtins(view.provenance)
    chosen = {name: plain[name] for name in ("model", "config", "scheduling", "versions", "datasets") if plain[name]}
    return {
        "run": f"{view.run.path} ({view.run.state})",
        "begun": f"{_when(summary.created)}, {len(view.sessions)} session(s)",
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


def _sample_view(reader: StoreReader, prefix: str) -> SampleView:
    found = [sample for sample in reader.samples() if sample.key.startswith(prefix)]
    if len(found) != 1:
        raise UsageError(f"{len(found)} samples of {reader.path} have a key that begins with {prefix!r}")
    return SampleView(sample=found[0], calls=list(reader.calls(found[0].key)))


def _show_sample(view: SampleView, json: bool) -> None:
    if json:
        print_json(view)
        return
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
