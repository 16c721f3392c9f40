"""Ring sizes of the real message queues, at every place of vLLM that makes one."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

shm_broadcast: Any = pytest.importorskip(
    "vllm.distributed.device_communicators.shm_broadcast", reason="the queues are the engine's"
)

from logproof_vllm.engine import mq  # noqa: E402

SITES = {
    "vllm/distributed/device_communicators/shm_broadcast.py": 2, "vllm/v1/executor/multiproc_executor.py": 2,
    "vllm/v1/executor/ray_executor_v2.py": 2,
}  # fmt: skip
"""Files that make a queue, with the number of calls: process groups, the multiprocess executor, the Ray executor."""


@pytest.fixture
def restored() -> Iterator[None]:
    kept = shm_broadcast.MessageQueue.__init__
    yield
    shm_broadcast.MessageQueue.__init__ = kept


def chunks(**geometry: Any) -> int:
    """Chunks of a fresh queue for one local reader."""
    queue = shm_broadcast.MessageQueue(1, 1, **geometry)
    return int(queue.buffer.max_chunks)


def test_unset_keeps_each_sites_own_size(restored: None) -> None:
    mq.install(None)
    assert (chunks(), chunks(max_chunk_bytes=1024, max_chunks=6)) == (10, 6)


def test_a_set_size_holds_whatever_the_site_passes(restored: None) -> None:
    mq.install(3)
    mq.install(3)
    assert (chunks(), chunks(max_chunk_bytes=1024, max_chunks=6)) == (3, 3)


def calls(path: Path) -> list[str]:
    """Names of the ring classes that a file calls."""
    tree = ast.walk(ast.parse(path.read_text()))
    named = [node.func.id for node in tree if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [name for name in named if name in ("MessageQueue", "ShmRingBuffer")]


def test_every_ring_of_vllm_is_made_by_the_hooked_class() -> None:
    """The ring itself is made nowhere but in the queue, so the hook misses no site."""
    found = importlib.util.find_spec("vllm")
    assert found is not None
    assert found.origin is not None
    root = Path(found.origin).parent
    made: dict[str, list[str]] = {}
    for path in root.rglob("*.py"):
        if b"MessageQueue(" in (text := path.read_bytes()) or b"ShmRingBuffer(" in text:
            made[str(path.relative_to(root.parent))] = calls(path)
    queues = {path: names.count("MessageQueue") for path, names in made.items() if "MessageQueue" in names}
    assert queues == SITES
    assert [path for path, names in made.items() if "ShmRingBuffer" in names] == [
        "vllm/distributed/device_communicators/shm_broadcast.py"
    ]
