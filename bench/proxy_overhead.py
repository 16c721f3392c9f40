"""What the proxy adds to a call: python bench/proxy_overhead.py [--engine URL] [--calls N] [--tokens T].

Each round makes the same call directly and through the proxy, one after the other, order alternating, over kept-alive
connections. Printed for plain and streamed calls: medians of both, median and quartiles of the rounds' differences
(whole reply, and to the first event), and the CPU time that the proxy's process took a call, its recording included,
alone and as a share of a direct call. CPU time holds on a machine that does other work too; wall time does not.
Without --engine a local server that answers at once stands for it, so that the difference is the proxy's own work; a
share is given only with a real engine. The direct call asks for what the proxy asks for (`--bare`: for nothing), since
ids and logprobs cost the engine some time themselves. The aims are under 5 % and under 2 ms
added; the artifact is made after the reply, in CPU time alone. The proxy runs in a process of its own, records to a
temporary directory, and is stopped at the end. Under two minutes on a quiet machine.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

CHAT = "/v1/chat/completions"
ASKS = {"logprobs": True, "top_logprobs": 6, "return_token_ids": True, "return_tokens_as_token_ids": True}
AIM_SHARE, AIM_MS = 0.05, 2.0
CALLS_ENGINE, CALLS_STANDING = 12, 100
WARM = 2
"""Rounds that are not counted: they open connections and fill caches."""


class Client:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def timed(self, body: bytes) -> tuple[float, float]:
        """Milliseconds to the first byte of the body and to the last."""
        try:
            return self._timed(body)
        except ConnectionError:
            # The server had closed the idle connection; the next attempt opens one.
            self._connection.close()
            return self._timed(body)

    def _timed(self, body: bytes) -> tuple[float, float]:
        start = time.perf_counter()
        self._connection.request("POST", CHAT, body, {"content-type": "application/json"})
        reply = self._connection.getresponse()
        reply.read1(1)
        first = time.perf_counter()
        reply.read()
        if reply.status != 200:
            sys.exit(f"the engine answered {reply.status}")
        return (first - start) * 1e3, (time.perf_counter() - start) * 1e3


def cpu_ms(pid: int) -> float:
    """CPU time of a process's threads so far, in ms; NaN where the system does not tell."""
    tasks = list(Path(f"/proc/{pid}/task").glob("*/schedstat"))
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6 if tasks else float("nan")


IDLE_S = 2.0


def idle_rate(pid: int) -> float:
    """CPU ms a second of the proxy at rest, once it has written what it holds: its clocks tick also without calls."""
    time.sleep(IDLE_S)
    before = cpu_ms(pid)
    time.sleep(IDLE_S)
    return (cpu_ms(pid) - before) / IDLE_S


def started(stack: ExitStack, url: str) -> tuple[int, int]:
    """Port and process id of a proxy in front of `url`."""
    out = stack.enter_context(tempfile.TemporaryDirectory())
    script = "from logproof.__main__ import main; main()"
    args = ["proxy", "--upstream", url, "--listen", "127.0.0.1:0", "--out", out, "--top-k", "5"]
    process = subprocess.Popen([sys.executable, "-c", script, *args], stderr=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+) for", line):
            return int(found[1]), process.pid
    sys.exit("the proxy did not start")


def standing(stack: ExitStack) -> str:
    """A server that answers at once with recorded replies."""
    # In the place of this script's own folder, where `proxy` would be this file.
    sys.path[0] = str(Path(__file__).parent.parent / "tests")
    from cli.verify.test_proxy import engine as fake_engine
    from fakes.server import FakeServer, Reply, Seen
    from proxy.pairs import pair

    fake = stack.enter_context(FakeServer())
    fake_engine(fake)

    def answer(seen: Seen) -> Reply:
        found = pair("chat_stream" if seen.json().get("stream") else "chat")
        kind = "text/event-stream" if found.streamed else "application/json"
        return Reply(body=found.asked, headers={"content-type": kind}, chunked=found.streamed)

    fake.on(CHAT, answer)
    return fake.url


def measure(direct: Client, through: Client, pid: int, plain: bytes, asked: bytes, calls: int) -> dict[str, float]:
    """Figures in ms over interleaved calls (`_first`: to the first event; `cpu_ms`: of the proxy, a call)."""
    rows, spent, began, idle = [], 0.0, 0.0, 0.0
    for i in range(calls + WARM):
        if i == WARM:
            idle, spent, began = idle_rate(pid), cpu_ms(pid), time.perf_counter()
        if i % 2:
            a = direct.timed(asked)
            b = through.timed(plain)
        else:
            b = through.timed(plain)
            a = direct.timed(asked)
        rows.append((*a, *b))
    time.sleep(IDLE_S)
    cpu = (cpu_ms(pid) - spent - idle * (time.perf_counter() - began)) / calls
    first_a, last_a, first_b, last_b = (list(column) for column in zip(*rows[WARM:], strict=True))
    added = statistics.quantiles((b - a for a, b in zip(last_a, last_b, strict=True)), n=4)
    found = {
        "direct_ms": statistics.median(last_a),
        "proxy_ms": statistics.median(last_b),
        "added_ms": added[1],
        "added_ms_quarter": added[0],
        "added_ms_three_quarters": added[2],
        "added_first_ms": statistics.median(b - a for a, b in zip(first_a, first_b, strict=True)),
        "cpu_ms": cpu,
    }
    return {name: round(value, 3) for name, value in found.items()}


def main() -> int:
    """Print the figures as JSON; exit 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", help="base URL of a running engine; a local stand-in without it")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--calls", type=int, help=f"rounds: {CALLS_ENGINE} with an engine, else {CALLS_STANDING}")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--bare", action="store_true", help="the direct call asks for nothing")
    given = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        url = given.engine or standing(stack)
        port, pid = started(stack, url)
        calls = given.calls or (CALLS_ENGINE if given.engine else CALLS_STANDING)
        direct, through = Client(int(url.rpartition(":")[2])), Client(port)
        for name, stream in (("plain", False), ("streamed", True)):
            body: dict[str, object] = {"model": given.model, "max_tokens": given.tokens, "temperature": 0}
            body |= {"messages": [{"role": "user", "content": "Write a story."}], "ignore_eos": True, "stream": stream}
            asked = body if given.bare else {**body, **ASKS}
            encoded = [json.dumps(b).encode() for b in (body, asked)]
            found = measure(direct, through, pid, *encoded, calls)
            if given.engine:
                found["added_share"] = round(found["added_ms"] / found["direct_ms"], 4)
                found["cpu_share"] = round(found["cpu_ms"] / found["direct_ms"], 4)
            figures[name] = found
    print(json.dumps({"engine": given.engine or "stand-in", "calls": calls, **figures}, indent=1))
    late = [f for f in figures.values() if f["added_ms"] >= AIM_MS]
    heavy = [f for f in figures.values() if f.get("added_share", 0.0) >= AIM_SHARE]
    return 1 if late or heavy else 0


if __name__ == "__main__":
    sys.exit(main())
