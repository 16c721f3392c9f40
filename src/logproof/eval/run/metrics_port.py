"""Counters of a run for Prometheus, on 127.0.0.1 while the run goes on. Importing it takes the extra `metrics`.

A thread of prometheus_client answers; it reads counters that the run's own thread only ever adds to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from logproof.errors import UsageError
from logproof.eval.run.counters import Counters

HOST = "127.0.0.1"
QUANTILES = (0.5, 0.95, 0.99)

ReadCounters = Callable[[], tuple[Counters, int]]
"""Gives the counters of a run, and how many samples it runs at a time now."""


class RunCollector(Collector):
    """Turns the counters of a run into metrics, anew for each reader."""

    def __init__(self, read: ReadCounters) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """The metrics, `logproof_` before each name."""
        c, limit = self._read()
        yield _counter("requests", "Requests by how they ended.", "status", ok=c.requests - c.failed, failed=c.failed)
        yield CounterMetricFamily("logproof_retries", "Sends beyond the first of each request.", c.retries)
        yield CounterMetricFamily("logproof_queue_seconds", "Seconds before the sends that were answered.", c.queued)
        tokens = {"in": c.prompt_tokens, "out": c.completion_tokens}
        yield _counter("tokens", "Tokens, as replies count them.", "direction", **tokens)
        yield _counter("samples", "Samples by how they ended.", "status", ok=c.samples - c.lost, failed=c.lost)
        yield GaugeMetricFamily("logproof_requests_in_flight", "Requests that wait for a reply.", c.in_flight)
        yield GaugeMetricFamily("logproof_concurrency", "Samples that may run at a time.", limit)
        yield _reply_seconds(c)


def _counter(name: str, about: str, label: str, **values: int) -> Metric:
    family = CounterMetricFamily(f"logproof_{name}", about, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _reply_seconds(counters: Counters) -> Metric:
    """A summary; the library's own kind of it has no quantiles."""
    name = "logproof_reply_seconds"
    family = Metric(name, "Seconds from the send to the whole reply.", "summary")
    for share in QUANTILES:
        seconds = counters.percentile(share)
        if seconds is not None:
            family.add_sample(name, {"quantile": str(share)}, seconds)
    family.add_sample(f"{name}_sum", {}, counters.replying)
    family.add_sample(f"{name}_count", {}, sum(counters.seconds))
    return family


@asynccontextmanager
async def metrics_port(port: int, read: ReadCounters) -> AsyncIterator[int]:
    """Serve the counters while the context is open; gives the port (0 asks for a free one). Raises UsageError."""
    registry = CollectorRegistry()
    registry.register(RunCollector(read))
    try:
        server, thread = start_http_server(port, HOST, registry)
    except (OSError, OverflowError) as error:
        raise UsageError(f"port {port} cannot be listened on: {error}", hint="name another with --metrics") from None
    try:
        yield server.server_port
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()
