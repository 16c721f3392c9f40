"""What the proxy adds to a call: python bench/proxy.py --engine URL [--calls N] [--tokens T].

Each round makes the same call directly and through the proxy, one after the other, order alternating, over kept-alive
connections; the medians and the median of the rounds' differences are printed, plain and streamed (whole reply, and
time to the first event). Without --engine a local server that answers at once stands for it, so that the difference is
the proxy's own work; the share is meaningful only with a real engine. The direct call asks for what the proxy asks for
(`--bare`: for nothing), since ids and logprobs cost the engine some time themselves. The aims are under 5 % and under
2 ms. The proxy runs in a process of its own, records to a temporary directory, and is stopped at the end.
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


def started(stack: ExitStack, url: str) -> int:
    """Port of a proxy in front of `url`, in a process of its own."""
    out = stack.enter_context(tempfile.TemporaryDirectory())
    script = "from logproof.cli.main import main; main()"
    args = ["proxy", "--upstream", url, "--listen", "127.0.0.1:0", "--out", out, "--top-k", "5"]
    process = subprocess.Popen([sys.executable, "-c", script, *args], stderr=subprocess.PIPE, text=True)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:(\d+) for", line):
            return int(found[1])
    sys.exit("the proxy did not start")


def standing(stack: ExitStack) -> str:
    """A server that answers at once with recorded replies."""
    # In the place of this script's own folder, where `proxy` would be this file.
    sys.path[0] = str(Path(__file__).parent.parent / "tests")
    from fakes.server import FakeServer, Reply, Seen
    from proxy.pairs import pair
    from proxy.test_cli import engine as fake_engine

    fake = stack.enter_context(FakeServer())
    fake_engine(fake)

    def answer(seen: Seen) -> Reply:
        found = pair("chat_stream" if seen.json().get("stream") else "chat")
        kind = "text/event-stream" if found.streamed else "application/json"
        return Reply(body=found.asked, headers={"content-type": kind}, chunked=found.streamed)

    fake.on(CHAT, answer)
    return fake.url


def measure(direct: Client, through: Client, plain: bytes, asked: bytes, calls: int) -> dict[str, float]:
    """Medians in ms over interleaved calls: direct, through, and their difference (`_first`: to the first event)."""
    rows = []
    for i in range(calls + 2):
        if i % 2:
            a = direct.timed(asked)
            b = through.timed(plain)
        else:
            b = through.timed(plain)
            a = direct.timed(asked)
        rows.append((*a, *b))
    first_a, last_a, first_b, last_b = (list(column) for column in zip(*rows[2:], strict=True))
    return {
        "direct_ms": statistics.median(last_a),
        "proxy_ms": statistics.median(last_b),
        "added_ms": statistics.median(b - a for a, b in zip(last_a, last_b, strict=True)),
        "added_first_ms": statistics.median(b - a for a, b in zip(first_a, first_b, strict=True)),
    }


def main() -> int:
    """Print the figures as JSON; exit 1 where an aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", help="base URL of a running engine; a local stand-in without it")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--bare", action="store_true", help="the direct call asks for nothing")
    given = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        url = given.engine or standing(stack)
        port = started(stack, url)
        direct, through = Client(int(url.rpartition(":")[2])), Client(port)
        for name, stream in (("plain", False), ("streamed", True)):
            body: dict[str, object] = {"model": given.model, "max_tokens": given.tokens, "temperature": 0}
            body |= {"messages": [{"role": "user", "content": "Write a story."}], "ignore_eos": True, "stream": stream}
            asked = body if given.bare else {**body, **ASKS}
            encoded = [json.dumps(b).encode() for b in (body, asked)]
            figures[name] = measure(direct, through, *encoded, given.calls)
    print(json.dumps({"engine": given.engine or "stand-in", **figures}, indent=1))
    late = [f for f in figures.values() if f["added_ms"] >= AIM_MS]
    heavy = [f for f in figures.values() if given.engine and f["added_ms"] >= AIM_SHARE * f["direct_ms"]]
    return 1 if late or heavy else 0


if __name__ == "__main__":
    sys.exit(main())
