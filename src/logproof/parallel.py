"""Bounded concurrency that keeps order and leaves no task behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def in_order(jobs: Sequence[Callable[[], Awaitable[T]]], limit: int) -> list[T]:
    """Results of the jobs in their order, at most `limit` running. The first failure cancels the rest and is raised."""
    return [result async for result in each_in_order(jobs, limit)]


async def each_in_order(jobs: Sequence[Callable[[], Awaitable[T]]], limit: int) -> AsyncIterator[T]:
    """The same, each result as soon as those before it are there: a failure costs none of them."""
    gate = asyncio.Semaphore(limit)

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with gate:
            return await job()

    tasks = [asyncio.ensure_future(run(job)) for job in jobs]
    try:
        for task in tasks:
            yield await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
