"""What the plugin costs: plain requests with and without it, and enforced decode against plain decode.

    python bench/plugin_overhead.py [--rounds 12] [--tokens 16]

One engine in this process, as in plugin_paired.py. "Without" means every hooked function of vLLM is the stock one and
the rows processor is out of the batch. The middleware runs outside the engine: its own line is the CPU time it adds to
a request that names no field.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from plugin_paired import PROMPT, Work, generate, load, note_load, parser, report, timed

CALLS = 2000
SHORT = PROMPT[:8]
"""The prompt: little prefill, so that nearly all of the time goes to steps that sample eight rows."""


def hooked() -> list[tuple[Any, str]]:
    """The functions of vLLM that the plugin replaced in this process."""
    from vllm.v1.core.sched import scheduler
    from vllm.v1.engine.detokenizer import BaseIncrementalDetokenizer
    from vllm.v1.engine.input_processor import InputProcessor
    from vllm.v1.sample.sampler import Sampler
    from vllm.v1.structured_output import StructuredOutputManager

    return [
        (Sampler, "forward"), (Sampler, "sample"), (scheduler, "check_stop"), (InputProcessor, "process_inputs"),
        (BaseIncrementalDetokenizer, "__init__"), (StructuredOutputManager, "_create_grammar"),
    ]  # fmt: skip


@contextmanager
def without_plugin(llm: Any) -> Iterator[None]:
    """Stock functions, and no rows processor in the batch."""
    from logproof_vllm.engine.v1 import Rows

    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    processors = runner.input_batch.logitsprocs.argmax_invariant
    kept = {(owner, name): getattr(owner, name) for owner, name in hooked()}
    rows = list(processors)
    for (owner, name), function in kept.items():
        setattr(owner, name, function.__wrapped__)
    processors[:] = [one for one in rows if not isinstance(one, Rows)]
    try:
        yield
    finally:
        processors[:] = rows
        for (owner, name), function in kept.items():
            setattr(owner, name, function)


def stock(llm: Any, work: Work) -> Work:
    def run() -> None:
        with without_plugin(llm):
            work()

    return run


def middleware() -> str:
    """CPU microseconds that the middleware adds to a plain request with a body of 2 kB."""
    from logproof_vllm.server.asgi import Middleware

    body = json.dumps({"model": "m", "prompt": "word " * 400, "max_tokens": 16}).encode()
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "headers": [(b"content-type", b"application/json")],
    }

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None: ...

    async def repeat(one: Any) -> None:
        for _ in range(CALLS):
            await one(dict(scope), receive, send)

    def cpu(one: Any) -> float:
        return min(timed(lambda: asyncio.run(repeat(one))).cpu for _ in range(5))

    added = (cpu(Middleware(app)) - cpu(app)) / CALLS
    return f"middleware, plain body of {len(body)} bytes: {added * 1e6:.1f} us of CPU a request"


def main() -> None:
    options = parser(__doc__, 12)
    options.add_argument("--tokens", type=int, default=16)
    given = options.parse_args()
    llm = load()
    note_load("at the start")
    print(middleware())
    greedy: dict[str, Any] = {"temperature": 0.0}
    random_: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9, "logprobs": 5}
    scored: dict[str, Any] = {"temperature": 1.0, "logprobs": 5}
    for name, sampling in (("8 greedy", greedy), ("8 random, top_p, logprobs 5", random_)):
        work = generate(llm, 8, given.tokens, SHORT, **sampling)
        report(f"plain, {name}: with / without", work, stock(llm, work), given.rounds)
    ids = [(i * 7919) % 40000 for i in range(given.tokens)]
    enforced = generate(llm, 8, given.tokens, SHORT, **scored, extra_args={"enforced_token_ids": ids})
    report("8 enforced / 8 plain, logprobs 5", enforced, generate(llm, 8, given.tokens, SHORT, **scored), given.rounds)
    note_load("at the end")


if __name__ == "__main__":
    main()
