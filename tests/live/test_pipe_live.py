"""The whole pipe on a float32 vLLM with the plugin: proxy, official client, artifact file, both replays, verdict."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from openai import OpenAI

from logproof.cli import ways
from logproof.cli.main import run as command
from logproof.models.connect import Options, connect
from logproof.proxy.app import STATUS
from logproof.verify import artifact as art
from logproof.verify import audit as auditing
from logproof.verify import files, structure
from logproof.verify import replay as rep
from logproof.verify.artifact import Artifact
from logproof.verify.judge import Replay, ReplayFailure
from logproof.verify.parallel import in_order
from logproof.verify.policy import Policy
from logproof.verify.verdict import Verdict
from proxy.running import call, wait_for
from verify.builders import policy

T = TypeVar("T")
Answer = Replay | ReplayFailure | None
EXACT = 2e-4
"""Largest difference, nats, of honest logprobs on one float32 engine on a CPU (8e-5 was seen)."""
K = 5
KEY = "sk-live-Do-Not-Keep"
MESSAGES = [{"role": "user", "content": "请用中文介绍一下熊猫 🐼，然后 write one line in English."}]
PROMPT = "从前有一只小猫 🐈‍⬛, and it"
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "person",
        "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 24}, "age": {"type": "integer"}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    },
}
STATED = ("--generation-config", "vllm", "--runner", "v1", "--device", "cpu", "--dtype", "float32", "--eos-id", "2")


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


def chat(client: OpenAI, **more: Any) -> str:
    """A chat call that leaves all sampling but a seed to the server."""
    reply = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=24, **more)
    return reply.choices[0].message.content or ""


def chat_stream(client: OpenAI, **more: Any) -> str:
    chunks = client.chat.completions.create(model="smollm2", messages=MESSAGES, max_tokens=24, stream=True, **more)
    return "".join(c.choices[0].delta.content or "" for c in chunks)


def completion(client: OpenAI, **more: Any) -> str:
    return client.completions.create(model="smollm2", prompt=PROMPT, **more).choices[0].text


def completion_stream(client: OpenAI, **more: Any) -> str:
    chunks = client.completions.create(model="smollm2", prompt=PROMPT, max_tokens=24, stream=True, **more)
    return "".join(c.choices[0].text for c in chunks)


CALLS: dict[str, Any] = {
    "chat": lambda c: chat(c, seed=11),
    "chat_stream": lambda c: chat_stream(c, seed=12),
    "chat_greedy": lambda c: chat(c, temperature=0),
    "completion": lambda c: completion(c, seed=13),
    "completion_stream": lambda c: completion_stream(c, seed=14, temperature=0.8, top_p=0.9),
    "structured": lambda c: chat(c, temperature=0, response_format=SCHEMA),
    "structured_seeded": lambda c: chat_stream(c, seed=15, response_format=SCHEMA),
    "structured_choice": lambda c: completion(
        c, temperature=0, extra_body={"structured_outputs": {"choice": ["一只猫", "two 🐕"]}}
    ),
}


@pytest.fixture(scope="module")
def recorded(plugin_url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """One artifact a call, as the proxy wrote it, and the text that the client got, as its provenance says."""
    out = tmp_path_factory.mktemp("proxy")
    texts = {}
    with proxied(plugin_url, out, "--top-k", str(K), *STATED) as url:
        client = OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
        for name, ask in CALLS.items():
            texts[name] = ask(client)
        port = int(url.rpartition(":")[2])
        wait_for(lambda: json.loads(call(port, "GET", STATUS, None).body)["recorded"] == len(CALLS))
    written = b"".join(p.read_bytes() for p in out.iterdir())
    assert KEY.encode() not in written
    made = [a for p in sorted(out.glob("artifacts-*.jsonl")) for a in files.read(p)]
    assert [a.provenance.text for a in made] == list(texts.values())
    return dict(zip(CALLS, made, strict=True))


Judged = dict[tuple[str, str], tuple[Answer, Verdict]]


@pytest.fixture(scope="module")
def judged(plugin_url: str, recorded: dict[str, Artifact]) -> Judged:
    """(call, method) -> its replay and verdict, four at a time."""
    keys = [(name, method) for name in CALLS for method in ("decode", "prefill")]

    async def work() -> Judged:
        async with connect(plugin_url, Options(texts=False)) as connection:
            jobs = [partial(auditing.verify, connection, recorded[n], rules(m), ways.method(m)) for n, m in keys]
            return dict(zip(keys, await in_order(jobs, 4), strict=True))

    return asyncio.run(work())


def rules(method: str) -> Policy:
    return policy(model_id="smollm2", exact=EXACT, k=K, method=method, require="distribution")


@pytest.mark.parametrize("method", ["decode", "prefill"])
@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("structured")])
def test_from_client_to_verdict(recorded: dict[str, Artifact], judged: Judged, name: str, method: str) -> None:
    artifact = recorded[name]
    assert artifact.sampling.unresolved() == ()
    assert structure.faults(artifact) == []
    answer, verdict = judged[name, method]
    assert isinstance(answer, Replay), answer
    assert (answer.method, verdict.context.method) == (method, method)
    assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.findings


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("structured")])
def test_structured_output_needs_the_grammar_again(recorded: dict[str, Artifact], judged: Judged, name: str) -> None:
    artifact = recorded[name]
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == "constrained"
    answer, verdict = judged[name, "decode"]
    assert isinstance(answer, Replay), answer
    assert (answer.method, answer.mode) == ("decode", "constrained")
    assert (verdict.status, outcomes(verdict, "S1", "S4")) == ("valid", ["pass", "pass"]), verdict.findings
    refused, open_ = judged[name, "prefill"]
    assert isinstance(refused, ReplayFailure)
    assert "constrained" in refused.detail
    assert open_.status == "inconclusive"


def outcomes(verdict: Verdict, *names: str) -> list[str]:
    return [f.outcome for name in names for f in verdict.findings if f.test == name]


def test_sources_say_what_the_request_did_not(recorded: dict[str, Artifact]) -> None:
    sources = recorded["completion"].sampling.sources
    assert (sources["temperature"], sources["top_k"], sources["max_tokens"]) == ("engine", "operator", "protocol")
    assert recorded["completion_stream"].sampling.sources["top_p"] == "request"
    assert recorded["completion"].sampling.max_tokens == 16
    assert recorded["structured_choice"].sampling.temperature == 0.0


def swapped(artifact: Artifact, at: int, token: int) -> Artifact:
    """The artifact with one other token that tells no logprob."""
    ids, rows = artifact.tokens.completion_ids, artifact.positions
    assert ids is not None
    assert rows is not None
    replace = msgspec.structs.replace
    return art.seal(
        replace(
            artifact,
            tokens=replace(artifact.tokens, completion_ids=(*ids[:at], token, *ids[at + 1 :])),
            positions=replace(rows, sampled=(*rows.sampled[:at], None, *rows.sampled[at + 1 :])),
        )
    )


@pytest.mark.parametrize("method", ["decode", "prefill"])
@pytest.mark.parametrize("name", ["chat", "chat_greedy"])
def test_every_edited_token_is_found_at_its_position(
    plugin_url: str, recorded: dict[str, Artifact], name: str, method: rep.Asked
) -> None:
    """The first position that contradicts the record is the edited one: its token is no draw of what was recorded."""
    honest = recorded[name]
    ids = honest.tokens.completion_ids or ()

    async def work() -> list[tuple[int, Verdict]]:
        async with connect(plugin_url, Options(texts=False)) as connection:
            cheats = {at: swapped(honest, at, (ids[at] + 7) % 49000 + 3) for at in range(0, len(ids), 4)}
            jobs = [partial(auditing.verify, connection, c, rules(method), method) for c in cheats.values()]
            return list(zip(cheats, [v for _, v in await in_order(jobs, 4)], strict=True))

    for at, verdict in go(work()):
        assert verdict.status == "invalid"
        details = [f.detail for f in verdict.findings if f.outcome == "fail"]
        named = {int(n) for d in details for n in re.findall(r"(?:token|first) (\d+)", d)}
        assert named & {at, at + 1} or at == len(ids) - 1, details


def test_commands_judge_what_the_proxy_wrote(
    plugin_url: str, recorded: dict[str, Artifact], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`verify --method decode` by a policy that `calibrate --method decode` made, plain and under a grammar."""
    prompts, rules_file = tmp_path / "prompts.jsonl", tmp_path / "policy.json"
    prompts.write_text("".join(json.dumps({"text": f"{PROMPT} {i}"}) + "\n" for i in range(14)))
    claim = ("--dtype", "float32", "--runner", "v1", "--device", "cpu", "--eos-id", "2")
    base = ("--engine", plugin_url, "--method", "decode")
    made = ("calibrate", prompts, *base, "-o", rules_file, "--max-tokens", "4", "-k", K, "--concurrencies", "2", *claim)
    assert command([str(a) for a in (*made, "--nonce", "c", "--no-greedy")]) == 0
    assert "an exact pair" in capfd.readouterr().out
    records = tmp_path / "records.parquet"
    assert files.write(records, [recorded["chat"], recorded["structured"]]) == 2
    verify = ("verify", records, *base, "--policy", rules_file, "--repeats", "2", "--concurrency", "2", "--json")
    assert command([str(a) for a in verify]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [v["context"]["method"] for v in found] == ["decode", "decode"]
    assert all(v["context"]["noise_floor"] <= EXACT for v in found)


def test_missing_tokens_are_asked_by_name(plugin_url: str, recorded: dict[str, Artifact]) -> None:
    """A narrow answer, completed by `logprob_token_ids`, holds every recorded token with the engine's own value."""

    async def work() -> tuple[Replay, Replay]:
        async with connect(plugin_url, Options(texts=False)) as connection:
            narrow = msgspec.structs.replace(
                connection, facts=msgspec.structs.replace(connection.facts, max_logprobs=2)
            )
            whole = await rep.replay(connection, recorded["completion"], "prefill")
            filled = await rep.replay(narrow, recorded["completion"], "prefill", fill=True)
            assert isinstance(whole, Replay)
            assert isinstance(filled, Replay)
            return whole, filled

    whole, filled = go(work())
    own = art.columns(recorded["completion"])
    assert rep.missing(own, filled.columns)
    assert filled.scored is not None
    assert rep.missing(own, filled.scored) == {}
    assert rep.max_abs(rep.pair(own, filled.scored)) <= EXACT
    assert rep.missing(own, whole.columns) == {}
