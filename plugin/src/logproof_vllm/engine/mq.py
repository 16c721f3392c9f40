"""``VLLM_MQ_MAX_CHUNKS``: one ring size for every shared-memory message queue of the server.

Missing upstream: the sizes are constants of each site, and none can be set.

Delete when: vLLM has a setting for them.

Every writer (executor, worker replies, process groups, the Ray executor) builds a ``MessageQueue``; readers get
their geometry from its handle. So one hook on the constructor covers all sites. A ring takes
``max_chunks * max_chunk_bytes`` of /dev/shm.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from logproof_vllm.hooks import MARK, marked


def install(chunks: int | None) -> None:
    """Hook the constructor; None leaves the stock class alone."""
    if chunks is None:
        return
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    if not marked(MessageQueue.__init__):
        MessageQueue.__init__ = wrap_init(MessageQueue.__init__, chunks)


def wrap_init(original: Callable[..., None], chunks: int) -> Callable[..., None]:
    """The constructor with `chunks` in place of whatever the site passes."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def __init__(*args: Any, **kwargs: Any) -> None:  # noqa: N807
        bound = signature.bind(*args, **kwargs)
        bound.arguments["max_chunks"] = chunks
        original(*bound.args, **bound.kwargs)

    setattr(__init__, MARK, True)
    return __init__
