"""Stop signals: the first ends a run after the samples in flight, the second at once."""

from __future__ import annotations

import asyncio
import signal

from logproof.eval.run.runner import RunEnd, Runner


async def run_until_signal(runner: Runner) -> RunEnd:
    """Run; SIGINT or SIGTERM ends it after the samples in flight, a second one at once.

    The second raises CancelledError; what was put into the store is kept either way.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(runner.run())
    seen = 0

    def on_signal(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen == 1:
            runner.stop(f"stopped by {name}", interrupted=True)
        else:
            task.cancel()

    handled = (signal.SIGINT, signal.SIGTERM)
    for number in handled:
        loop.add_signal_handler(number, on_signal, number.name)
    try:
        return await task
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
