from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from eval.toy import RecordList, ToyEngine, connection, ready
from logproof.client.pool import Pool
from logproof.eval.run.runner import Runner, RunPolicy
from logproof.eval.run.stop_signals import run_until_signal


def test_the_first_signal_ends_after_what_is_in_flight() -> None:
    engine = ToyEngine(lambda body: os.kill(os.getpid(), signal.SIGINT) if len(engine.seen) == 2 else None)
    conn = connection(engine)
    sink = RecordList()
    runner = Runner(ready(conn, "gsm8k_gen"), Pool([conn]), sink, RunPolicy(1))
    ended = asyncio.run(run_until_signal(runner))
    assert ended.interrupted
    assert ended.reason == "stopped by SIGINT"
    assert 2 <= len(sink.samples) < 24
    assert sink.flushed == 1


def test_the_second_signal_ends_at_once_and_keeps_what_is_stored() -> None:
    class Hanging(ToyEngine):
        async def send(self, request: Any) -> Any:
            if len(self.seen) == 1:
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0)
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.Event().wait()
            return await super().send(request)

    conn = connection(Hanging())
    sink = RecordList()
    runner = Runner(ready(conn, "gsm8k_gen"), Pool([conn]), sink, RunPolicy(1))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run_until_signal(runner))
    assert len(sink.samples) == 1
    assert sink.flushed == 1
