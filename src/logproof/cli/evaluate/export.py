"""`logproof export`: samples or calls of a run as JSON lines or Parquet."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.evaluate.run_options import RunDir
from logproof.cli.printing import note
from logproof.store.export import export_run, format_of


class TableName(StrEnum):
    """What can be exported."""

    samples = "samples"
    calls = "calls"


class FormatName(StrEnum):
    """How it can be exported."""

    jsonl = "jsonl"
    parquet = "parquet"


def export(
    run: RunDir,
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
    count = export_run(
        run,
        sys.stdout.buffer if str(to) == "-" else to,
        table.value,
        form.value if form is not None else format_of(to),
        task=task,
        scorer=scorer,
        columns=columns,
        replace=replace,
    )
    if str(to) != "-":
        note(f"{count} {table.value} written to {to}")
