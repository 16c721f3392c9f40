"""`logproof audits`: several audited providers judged together, at a stated rate of false discoveries."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli import options as opt
from logproof.cli.printing import note, out, print_json, visible
from logproof.cli.verify.verify_options import evidence_words
from logproof.errors import UsageError
from logproof.verify.audit.audit_files import read_audit
from logproof.verify.audit.evidence import Ruling, discoveries
from logproof.verify.verdict import exit_code


def audits(
    record: Annotated[list[Path], typer.Argument(help="Files that `audit --record` wrote.", metavar="RECORD...")],
    level: Annotated[
        float, typer.Option("--level", help="Share of the rejected that may be rejected falsely, in the mean.")
    ] = 0.05,
    as_json: opt.AsJson = False,
) -> int:
    """Say which of several audited providers are rejected, at a stated rate of false discoveries.

    Each provider needs the more evidence, the more of them are judged. Exit 1 where one is rejected, 0 where each
    audit is valid, else 2.
    """
    records = [read_audit(path) for path in record]
    names = [(a.provider, a.model) for a in records]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise UsageError(f"two audits of {twice[1]} at {twice[0]}", hint="give one audit of each provider")
    if not 0.0 < level < 1.0:
        raise UsageError(f"--level is a share between 0 and 1, got {level:g}")
    rulings = discoveries(records, level)
    if as_json:
        print_json({"level": level, "providers": rulings})
    else:
        _print_rulings(rulings, level)
    return exit_code(r.status for r in rulings)


def _print_rulings(rulings: list[Ruling], level: float) -> None:
    table = Table("provider", "model", "verdict", "its own audit", "requests", "log e", "found", box=None)
    for r in rulings:
        evidence = "contradiction" if r.contradiction else evidence_words(r.log_e)
        row = (r.provider, r.model, r.status, r.alone, str(r.requests), evidence, r.headline)
        table.add_row(*(escape(visible(cell)) for cell in row))
    out.print(table)
    gone = sum(r.status == "invalid" for r in rulings)
    share = f"{100 * level:.6g}%"
    out.print(f"{gone} of {len(rulings)} rejected; of those, at most {share} falsely in the mean", markup=False)
    if any(r.alone == "invalid" and r.status != "invalid" for r in rulings):
        note("an audit that stopped at its own level may hold too little for so many: audit again with --all")
