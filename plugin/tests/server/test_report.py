"""The report of a reply: where it comes from."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from logproof_vllm import canonical
from logproof_vllm.server import report


def test_every_engine_core_is_asked_for_the_position() -> None:
    class Client:
        core_engines = (b"0", b"1")

        async def _call_utility_async(self, method: str, tag: str, *, engine: bytes) -> int | None:
            assert (method, tag) == (canonical.GRAMMAR_UTILITY, "x")
            return 4 if engine == b"1" else None

    assert asyncio.run(report.fetch_off_at(SimpleNamespace(engine_core=Client()), "x")) == 4
