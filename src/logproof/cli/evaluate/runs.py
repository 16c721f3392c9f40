"""`logproof runs`: the runs in a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from logproof.cli.options import AsJson
from logproof.cli.printing import local_time, note, out, print_json
from logproof.store.catalog import RunInfo, find_runs

HEADINGS = ("run", "state", "begun", "samples", "failed", "tasks")


def runs(
    directory: Annotated[Path, typer.Argument(help="Where to look, three directories deep.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """List the runs in a directory, oldest first."""
    infos = find_runs(directory)
    if as_json:
        print_json(infos)
        return
    if not infos:
        note(f"no runs in {directory}")
        return
    table = Table(*(Column(name, overflow="fold") for name in HEADINGS), box=None, pad_edge=False)
    for info in infos:
        path = str(Path(info.path).relative_to(directory))
        table.add_row(escape(path), info.state, *map(escape, _columns(info)))
    out.print(table)


def _columns(info: RunInfo) -> tuple[str, str, str, str]:
    if info.summary is None:
        return "", "", "", info.error or ""
    tasks = info.summary.tasks
    counts = _share(sum(t.ok for t in tasks), [t.planned for t in tasks])
    return local_time(info.summary.created), counts, str(sum(t.failed for t in tasks)), ", ".join(t.task for t in tasks)


def _share(ok: int, planned: list[int | None]) -> str:
    known = [number for number in planned if number is not None]
    return f"{ok} of {sum(known)}" if known and len(known) == len(planned) else str(ok)
