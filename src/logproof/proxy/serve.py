"""Runs the proxy under uvicorn until SIGINT or SIGTERM: then no call is taken, those in flight end, all is flushed."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

from logproof.errors import UsageError
from logproof.proxy.app import Proxy

if TYPE_CHECKING:
    import uvicorn

DRAIN_S = 30
"""Seconds that calls in flight may take after the signal."""


def listen(text: str) -> socket.socket:
    """A listening socket at HOST:PORT; port 0 takes a free one. Raises UsageError."""
    host, mark, port = text.rpartition(":")
    if not mark or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"--listen takes HOST:PORT, got {text!r}")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host or "127.0.0.1", int(port)))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen at {text}: {error.strerror or error}") from None
    return listener


def run(proxy: Proxy, at: socket.socket) -> None:
    """Serve until a signal ends it; returns after the flush. To be called in the main thread."""
    # uvicorn raises the signal again when it has shut down; by then it has done its work.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server(proxy).run(sockets=[at])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def server(proxy: Proxy, *, drain_s: int = DRAIN_S) -> uvicorn.Server:
    """A server that adds no header of its own and logs no request."""
    import uvicorn  # here, for no other command needs it, and it would lengthen the start of each

    config = uvicorn.Config(
        proxy.application(),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=drain_s,
        timeout_keep_alive=75,
    )
    return uvicorn.Server(config)
