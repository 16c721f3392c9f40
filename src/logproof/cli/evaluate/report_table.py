"""The table of a report, as several commands print it."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from logproof.cli.printing import out, print_json
from logproof.eval.report.report import Report, table_rows


def print_report(report: Report, as_json: bool) -> None:
    """Print a report as a table, or as JSON."""
    if as_json:
        print_json(report)
        return
    table = Table(title=escape(f"{report.model} over {report.dialect}"), title_justify="left", show_edge=False)
    for name, right in (("task", False), ("metric", False), ("value ± se", True), ("rows", True), ("failed", True)):
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("remarks")
    for row in table_rows(report):
        table.add_row(*(escape(cell) for cell in row))
    out.print(table)
    for t in report.tasks:
        for reason, count in t.failures.items():
            out.print(f"{t.task}: {count} failed: {reason}", markup=False)
    for note in report.notes:
        out.print(f"note: {note}", markup=False)
    for reason in report.suspect:
        out.print(f"suspect: {reason}", markup=False)
