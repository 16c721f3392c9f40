from __future__ import annotations

import asyncio
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eval.run.test_counters import call
from logproof.errors import UsageError
from logproof.eval.run.counters import Counters
from logproof.eval.run.metrics_port import RunCollector, metrics_port
from logproof.eval.run.run import Order, check
from logproof.eval.tasks.task import Settings


def text_of(counters: Counters, limit: int) -> str:
    registry = CollectorRegistry()
    registry.register(RunCollector(lambda: (counters, limit)))
    return generate_latest(registry).decode()


def test_counters_in_the_text_form() -> None:
    counters = Counters()
    counters.add(call(0.1, attempts=2), wall=0.35)
    counters.add_failure(3)
    counters.add_sample(True)
    counters.add_sample(False)
    counters.in_flight = 4
    text = text_of(counters, 8)
    assert 'logproof_requests_total{status="ok"} 1.0\n' in text
    assert 'logproof_requests_total{status="failed"} 1.0\n' in text
    assert "# TYPE logproof_retries_total counter\nlogproof_retries_total 3.0\n" in text
    assert 'logproof_tokens_total{direction="in"} 3.0\n' in text
    assert 'logproof_tokens_total{direction="out"} 2.0\n' in text
    assert 'logproof_samples_total{status="failed"} 1.0\n' in text
    assert counters.queued == pytest.approx(0.25)
    assert f"logproof_queue_seconds_total {counters.queued}\n" in text
    assert "# TYPE logproof_requests_in_flight gauge\nlogproof_requests_in_flight 4.0\n" in text
    assert "logproof_concurrency 8.0\n" in text
    assert "logproof_reply_seconds_count 1.0\n" in text
    assert '# TYPE logproof_reply_seconds summary\nlogproof_reply_seconds{quantile="0.5"} 0.1' in text
    assert "queue 0.25 s a request" in counters.line()
    assert "quantile" not in text_of(Counters(), 1)


def test_the_port_answers_on_this_machine_until_the_run_ends() -> None:
    def get(port: int) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            assert reply.headers["content-type"].startswith("text/plain; version=")
            return str(reply.read().decode())

    async def go() -> int:
        counters = Counters()
        async with metrics_port(0, lambda: (counters, 1)) as port:
            counters.add(call(0.1))
            assert 'requests_total{status="ok"} 1.0' in await asyncio.to_thread(get, port)
            with pytest.raises(UsageError, match="cannot be listened on"):
                async with metrics_port(port, lambda: (counters, 1)):
                    pass
        return port

    with pytest.raises(OSError, match="refused"):
        get(asyncio.run(go()))


def test_without_the_extra_metrics_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "logproof.eval.run.metrics_port")
    order = Order(entries=[("gsm8k_gen", Settings(limit="1", shots=0))], out=tmp_path / "run", metrics=0)
    with pytest.raises(UsageError, match="--metrics needs the optional extra") as caught:
        check(order)
    assert caught.value.hint == "pip install 'logproof[metrics]'"
