"""The pipe that live tests send calls through: proxy command, official client, artifact files, verdicts."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from openai import OpenAI

from logproof.cli.verify import verify_options
from logproof.client.connect import Options, connect
from logproof.proxy.app import STATUS
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact, seal
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.audit.verify import verify
from logproof.verify.policy import Policy
from logproof.verify.verdict import Verdict
from proxy.running import call, wait_for
from verify.builders import needing, own_request, policy

T = TypeVar("T")
Answer = ReplayResult | ReplayFailure | None
EXACT = 2e-4
"""Largest difference, nats, of honest logprobs on one float32 engine on a CPU (8e-5 was seen)."""
K = 5
KEY = "sk-live-Do-Not-Keep"
MESSAGES = [{"role": "user", "content": "请用中文介绍一下熊猫 🐼，然后 write one line in English."}]
PROMPT = "从前有一只小猫 🐈‍⬛, and it"
STATED = ("--generation-config", "vllm", "--runner", "v1", "--device", "cpu", "--dtype", "float32", "--eos-id", "2")
SERVER = verify_options.server_statement(None, "vllm", None)
"""The same statement, as a verifier makes it."""


def go(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@contextmanager
def proxied(url: str, out: Path, *options: str) -> Iterator[str]:
    """The command in front of an engine; on the way out it has written all."""
    script = "from logproof.__main__ import main; main()"
    args = ["proxy", "--upstream", url, "--out", str(out), "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen([sys.executable, "-c", script, *args], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        found, told = None, []
        while found is None:
            line = process.stderr.readline()
            assert line, f"the proxy did not start: {told}"
            told.append(line)
            found = re.search(r"proxy at (http://127\.0\.0\.1:\d+) for", line)
        yield found[1]
        process.terminate()
        assert process.wait(60) == 0, process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def recordings(url: str, out: Path, ask: Callable[[OpenAI], T], calls: int, *options: str) -> tuple[T, list[Artifact]]:
    """What a client of the proxy got, and the artifacts of so many calls."""
    with proxied(url, out, "--top-k", str(K), *STATED, *options) as at:
        got = ask(OpenAI(base_url=f"{at}/v1", api_key=KEY, max_retries=0))
        port = int(at.rpartition(":")[2])
        wait_for(lambda: json.loads(call(port, "GET", STATUS, None).body)["recorded"] == calls)
    return got, [a for p in sorted(out.glob("artifacts-*.jsonl")) for a in artifact_files.read(p)]


async def verdicts_of(url: str, made: list[Artifact], policy_: Policy, **how: Any) -> list[tuple[Answer, Verdict]]:
    async with connect(url, Options(texts=False)) as connection:
        return [await verify(connection, a, policy_, known=own_request(a), server=SERVER, **how) for a in made]


def rules(method: str) -> Policy:
    return policy(model_id="smollm2", exact=EXACT, k=K, method=method, requires=needing("distribution"))


def outcomes(verdict: Verdict, *names: str) -> list[str]:
    return [f.outcome for name in names for f in verdict.findings if f.test == name]


def swapped(artifact: Artifact, at: int, token: int) -> Artifact:
    """The artifact with one other token that tells no logprob."""
    ids, rows = artifact.tokens.completion_ids, artifact.positions
    assert ids is not None
    assert rows is not None
    replace = msgspec.structs.replace
    return seal(
        replace(
            artifact,
            tokens=replace(artifact.tokens, completion_ids=(*ids[:at], token, *ids[at + 1 :])),
            positions=replace(rows, sampled=(*rows.sampled[:at], None, *rows.sampled[at + 1 :])),
        )
    )


def claiming(made: Artifact, other: Artifact) -> Artifact:
    """The artifact with another's request and prompt."""
    ids = other.tokens.prompt_ids
    replace = msgspec.structs.replace
    usage = replace(made.end.usage, prompt=len(ids or ()))
    return seal(
        replace(
            made,
            tokens=replace(made.tokens, prompt_ids=ids),
            request=other.request,
            end=replace(made.end, usage=usage),
        )
    )
