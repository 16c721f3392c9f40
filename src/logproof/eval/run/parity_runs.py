"""The runs of a parity check: A, B and, where the engine's own noise is asked for, each a second time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from logproof.client.connect import Announce, Options
from logproof.dialects.registry import get_dialect
from logproof.eval.report.parity import CONTROL, CONTROL_B, RUN_A, RUN_B, Parity, parity_of, write_parity
from logproof.eval.run.run import Order, RunResult, plan_order

CarryOut = Callable[[Order, Sequence[str], Options, str], Awaitable[RunResult]]
"""Runs an order at URLs; the text is a label for its progress."""


class ParitySide(msgspec.Struct, frozen=True):
    """One of the two sides. url: of its endpoint. options: with dialect and served name. stream: ask for streams."""

    url: str
    options: Options
    stream: bool = False


class ParityRun(msgspec.Struct, frozen=True):
    """One of the runs. name: of its directory."""

    name: str
    side: ParitySide
    order: Order


def parity_runs(order: Order, a: ParitySide, b: ParitySide, *, control: bool, control_b: bool) -> list[ParityRun]:
    """A and B, then A again for `control`, and B again for `control_b`.

    order: of each run, but that its directory is that of the whole check. Raises UsageError for an unknown dialect.
    """
    for side in (a, b):
        if side.options.dialect != "auto":
            get_dialect(side.options.dialect)
    sides = [(RUN_A, a), (RUN_B, b)]
    if control:
        sides.append((CONTROL, a))
    if control_b:
        sides.append((CONTROL_B, b))
    return [ParityRun(name, side, _order(order, name, side)) for name, side in sides]


def _order(order: Order, name: str, side: ParitySide) -> Order:
    entries = [(task, msgspec.structs.replace(settings, stream=side.stream)) for task, settings in order.entries]
    return msgspec.structs.replace(order, entries=entries, out=order.out / name)


async def run_parity(
    runs: Sequence[ParityRun], root: Path, tolerance: float, *, carry_out: CarryOut, announce: Announce
) -> Parity | None:
    """Plan B before A takes its time, run all, compare them and keep the comparison; None where a run was interrupted.

    root: directory of the check. tolerance: nat. carry_out: runs each of them. Raises as `run_order` does.
    """
    second = runs[1]
    await plan_order(second.order, [second.side.url], second.side.options, announce)
    for run in runs:
        result = await carry_out(run.order, [run.side.url], run.side.options, run.name)
        if result.ended.interrupted:
            return None
    parity = parity_of(root, tolerance)
    write_parity(parity, root)
    return parity
