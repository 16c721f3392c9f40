"""`dialects`: what each wire can do, leaf by leaf, found by probing the code."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from logproof.cli.options import AsJson
from logproof.cli.printing import out, print_json
from logproof.dialects.matrix import CapabilityMatrix, LeafMatrix, capability_matrix, decided, leaf_matrix, merged
from logproof.dialects.registry import dialect_ids, get_dialect


def dialects(
    name: Annotated[str | None, typer.Argument(help="One dialect, with its decisions and reasons.")] = None,
    leaves: Annotated[bool, typer.Option("--leaves", help="Show every leaf, not only capabilities.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each dialect can do, at the endpoints that speak it, all known and on."""
    shown_dialects = [get_dialect(i) for i in ([name] if name else dialect_ids())]
    matrix = leaf_matrix(shown_dialects)
    if as_json:
        print_json({"capabilities": capability_matrix(shown_dialects), "leaves": matrix})
    elif name:
        _show_one(name, matrix)
    else:
        _show_capabilities([d.id for d in shown_dialects], capability_matrix(shown_dialects))
        if leaves:
            _show_leaves([d.id for d in shown_dialects], matrix)


def _show_capabilities(ids: list[str], matrix: CapabilityMatrix) -> None:
    table = _table("capability", ids)
    for key, row in matrix.items():
        table.add_row(key, *(merged({k: "yes" if why is None else "-" for k, why in row[i].items()}) for i in ids))
    out.print(table)


def _show_leaves(ids: list[str], matrix: LeafMatrix) -> None:
    table = _table("leaf", ids)
    for leaf, row in matrix.items():
        table.add_row(leaf, *(merged({kind: decided(cells) for kind, cells in row[i].items()}) for i in ids))
    out.print(table)


def _show_one(dialect_id: str, matrix: LeafMatrix) -> None:
    table = Table(title=dialect_id, title_justify="left", show_edge=False, pad_edge=False)
    for name in ("leaf", "value", "endpoint", "decision", "pointer or reason"):
        table.add_column(name)
    for leaf, row in matrix.items():
        for kind, cells in row[dialect_id].items():
            for cell in cells:
                table.add_row(leaf, escape(repr(cell.value)[:40]), kind, cell.kind, escape(cell.detail))
    out.print(table)


def _table(first: str, ids: list[str]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    table.add_column(first)
    for name in ids:
        table.add_column(name)
    return table
