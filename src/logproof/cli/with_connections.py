"""Runs one coroutine of the product with open connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from logproof.client.connect import Options, connect

T = TypeVar("T")


def run_with_connections(work: Callable[..., Coroutine[Any, Any, T]], *endpoints: tuple[str, Options]) -> T:
    """What `work` returns; it is called with one open connection an endpoint, in this order.

    endpoints: base URL and options of each. Raises as `connect` and `work`.
    """

    async def run() -> T:
        async with AsyncExitStack() as stack:
            connections = [await stack.enter_async_context(connect(url, options)) for url, options in endpoints]
            return await work(*connections)

    return asyncio.run(run())
