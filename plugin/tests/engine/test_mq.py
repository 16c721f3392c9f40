"""The ring size of the message queues."""

from __future__ import annotations

from typing import Any

import pytest

from logproof_vllm.engine import mq
from logproof_vllm.hooks import marked


class Queue:
    """Stands for MessageQueue."""

    def __init__(self, n_reader: int, n_local: int, ranks: object = None, size: int = 24, max_chunks: int = 10) -> None:
        self.max_chunks = max_chunks


@pytest.mark.parametrize(("args", "kwargs"), [((1, 1), {}), ((1, 1, None, 4, 6), {}), ((1, 1), {"max_chunks": 6})])
def test_every_site_gets_the_ring_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    wrapped: Any = type("Wrapped", (Queue,), {"__init__": mq.wrap_init(Queue.__init__, 3)})
    assert marked(wrapped.__init__)
    assert wrapped(*args, **kwargs).max_chunks == 3


def test_an_unset_ring_size_loads_nothing() -> None:
    mq.install(None)
