"""`dialects`: what each wire can do, leaf by leaf, found by probing the code."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli.options import AsJson
from logproof.cli.printing import out, print_json
from logproof.models.dialects import dialect_ids, get_dialect
from logproof.models.matrix import Cell, capability_matrix, leaf_matrix

_SIGNS = {"sent": "sent", "no-op": "no-op", "refused": "-", "invalid": "-"}


def dialects(
    name: Annotated[str | None, typer.Argument(help="One dialect, with its decisions and reasons.")] = None,
    leaves: Annotated[bool, typer.Option("--leaves", help="Show every leaf, not only capabilities.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each dialect can do, at an endpoint of which everything is known and on."""
    known = [get_dialect(i) for i in ([name] if name else dialect_ids())]
    matrix = leaf_matrix(known)
    if as_json:
        print_json({"capabilities": capability_matrix(known), "leaves": matrix})
    elif name:
        _show_one(name, matrix)
    else:
        _show_capabilities([d.id for d in known], capability_matrix(known))
        if leaves:
            _show_leaves([d.id for d in known], matrix)


def summary(cells: tuple[Cell, ...]) -> str:
    """One word for a leaf's cells, or `by value` where values are decided differently."""
    kinds = {_SIGNS[c.kind] for c in cells}
    return kinds.pop() if len(kinds) == 1 else "by value"


def _show_capabilities(ids: list[str], matrix: dict[str, dict[str, str | None]]) -> None:
    table = _table("capability", ids)
    for key, row in matrix.items():
        table.add_row(key, *("yes" if row[i] is None else "-" for i in ids))
    out.print(table)


def _show_leaves(ids: list[str], matrix: dict[str, dict[str, tuple[Cell, ...]]]) -> None:
    table = _table("leaf", ids)
    for leaf, row in matrix.items():
        table.add_row(leaf, *(summary(row[i]) for i in ids))
    out.print(table)


def _show_one(dialect_id: str, matrix: dict[str, dict[str, tuple[Cell, ...]]]) -> None:
    table = Table(title=dialect_id, title_justify="left", show_edge=False, pad_edge=False)
    for name in ("leaf", "value", "decision", "pointer or reason"):
        table.add_column(name)
    for leaf, row in matrix.items():
        for cell in row[dialect_id]:
            table.add_row(leaf, escape(repr(cell.value)[:40]), cell.kind, escape(cell.detail))
    out.print(table)


def _table(first: str, ids: list[str]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in ids:
        table.add_column(name)
    return table
