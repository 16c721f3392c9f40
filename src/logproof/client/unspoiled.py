"""Ask once more where another request on the server spoiled the lists of a reply."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from logproof.errors import SpoiledTopList

T = TypeVar("T")


async def ask_unspoiled(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` gives, asked again once after a SpoiledTopList. Raises what it raises, a second one included."""
    try:
        return await ask()
    except SpoiledTopList:
        return await ask()
