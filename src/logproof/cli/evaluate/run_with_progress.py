"""Runs as a command carries them out: progress on standard error, and how to go on after an end that came too soon."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from logproof.cli.evaluate.report_table import print_report
from logproof.cli.printing import note
from logproof.cli.progress import Bars
from logproof.client.connect import Options
from logproof.errors import EngineGone
from logproof.eval.run.run import Order, RunResult, run_order


async def run_with_progress(order: Order, urls: Sequence[str], options: Options, label: str = "") -> RunResult:
    """Run an order with progress, and say where it went. Raises KeyboardInterrupt where it was cut short."""
    try:
        return await run_order(order, urls, options, announce=note, progress=Bars(label))
    except asyncio.CancelledError:
        note(f"interrupted; what was stored is kept, logproof eval ... --out {order.out} --resume goes on")
        raise KeyboardInterrupt from None
    except EngineGone as gone:
        gone.hint = f"{gone.hint} with: logproof eval ... --out {order.out} --resume"
        raise


def print_result(result: RunResult, as_json: bool) -> int:
    """Print a finished run and return its exit code."""
    print_report(result.report, as_json)
    ended = result.ended
    note(f"{ended.ran} samples run, {ended.skipped} stored before, {ended.failed} failed; {result.path}")
    note(ended.counters.line())
    if ended.reason is not None:
        note(f"ended early: {ended.reason}; logproof eval ... --out {result.path} --resume goes on")
    return result.exit_code
