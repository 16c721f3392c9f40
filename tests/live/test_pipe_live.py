"""The whole pipe on a float32 vLLM with the plugin: proxy, official client, artifact file, both replays, verdict."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai import OpenAI

from live.pipe import (
    EXACT,
    KEY,
    MESSAGES,
    PROMPT,
    SERVER,
    Answer,
    K,
    claiming,
    go,
    outcomes,
    recordings,
    rules,
    swapped,
    verdicts_of,
)
from logproof.cli.main import run as command
from logproof.cli.verify import verify_options
from logproof.client.connect import Options, connect
from logproof.parallel import in_order
from logproof.verify.artifact import artifact_files
from logproof.verify.artifact.artifact import Artifact, artifact_columns, seal
from logproof.verify.artifact.replay_result import ReplayFailure, ReplayResult
from logproof.verify.artifact.request_files import write_requests
from logproof.verify.audit.verify import verify
from logproof.verify.checks import recorded as offline
from logproof.verify.checks import structure
from logproof.verify.policy import dump
from logproof.verify.replay.by_prefill import missing
from logproof.verify.replay.replay import replay
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.distance import max_abs, pair
from logproof.verify.verdict import Verdict
from verify.builders import own_request

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
    texts, made = recordings(plugin_url, out, lambda client: [ask(client) for ask in CALLS.values()], len(CALLS))
    written = b"".join(p.read_bytes() for p in out.iterdir())
    assert KEY.encode() not in written
    assert [a.provenance.text for a in made] == texts
    return dict(zip(CALLS, made, strict=True))


Judged = dict[tuple[str, str], tuple[Answer, Verdict]]


@pytest.fixture(scope="module")
def judged(plugin_url: str, recorded: dict[str, Artifact]) -> Judged:
    """(call, method) -> its replay and verdict, four at a time."""
    keys = [(name, method) for name in CALLS for method in ("decode", "prefill")]

    async def work() -> Judged:
        async with connect(plugin_url, Options(texts=False)) as connection:
            jobs = [
                partial(verify, connection, r, rules(m), verify_options.method(m), known=own_request(r), server=SERVER)
                for r, m in ((recorded[name], method) for name, method in keys)
            ]
            return dict(zip(keys, await in_order(jobs, 4), strict=True))

    return asyncio.run(work())


@pytest.mark.parametrize("method", ["decode", "prefill"])
@pytest.mark.parametrize("name", [name for name in CALLS if not name.startswith("structured")])
def test_from_client_to_verdict(recorded: dict[str, Artifact], judged: Judged, name: str, method: str) -> None:
    artifact = recorded[name]
    assert artifact.sampling.unresolved() == ()
    assert structure.faults(artifact) == []
    answer, verdict = judged[name, method]
    assert isinstance(answer, ReplayResult), answer
    assert (answer.method, verdict.context.method) == (method, method)
    assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.findings


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("structured")])
def test_structured_output_needs_the_grammar_again(recorded: dict[str, Artifact], judged: Judged, name: str) -> None:
    artifact = recorded[name]
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == "constrained"
    answer, verdict = judged[name, "decode"]
    assert isinstance(answer, ReplayResult), answer
    assert (answer.method, answer.mode) == ("decode", "constrained")
    assert (verdict.status, outcomes(verdict, "S1", "S4")) == ("valid", ["pass", "pass"]), verdict.findings
    refused, open_ = judged[name, "prefill"]
    assert isinstance(refused, ReplayFailure)
    assert "constrained" in refused.detail
    assert open_.status == "inconclusive"


def test_sources_say_what_the_request_did_not(recorded: dict[str, Artifact]) -> None:
    sources = recorded["completion"].sampling.sources
    assert (sources["temperature"], sources["top_k"], sources["max_tokens"]) == ("engine", "operator", "protocol")
    assert recorded["completion_stream"].sampling.sources["top_p"] == "request"
    assert recorded["completion"].sampling.max_tokens == 16
    assert recorded["structured_choice"].sampling.temperature == 0.0


@pytest.mark.parametrize("method", ["decode", "prefill"])
@pytest.mark.parametrize("name", ["chat", "chat_greedy"])
def test_every_edited_token_is_found_at_its_position(
    plugin_url: str, recorded: dict[str, Artifact], name: str, method: MethodChoice
) -> None:
    """The first position that contradicts the record is the edited one: its token is no draw of what was recorded."""
    honest = recorded[name]
    ids = honest.tokens.completion_ids or ()

    async def work() -> list[tuple[int, Verdict]]:
        async with connect(plugin_url, Options(texts=False)) as connection:
            cheats = {at: swapped(honest, at, (ids[at] + 7) % 49000 + 3) for at in range(0, len(ids), 4)}
            jobs = [partial(verify, connection, c, rules(method), method) for c in cheats.values()]
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
    assert command([str(a) for a in (*made, "--nonce", "c")]) == 0
    assert "an exact pair" in capfd.readouterr().out
    records = tmp_path / "records.parquet"
    assert artifact_files.write(records, [recorded["chat"], recorded["structured"]]) == 2
    asked = tmp_path / "asked.requests"
    write_requests(asked, [own_request(recorded["chat"]), own_request(recorded["structured"])])
    verify = (
        "verify",
        records,
        *base,
        "--generation-config",
        "vllm",
        "--requests",
        asked,
        "--policy",
        rules_file,
        "--repeats",
        "2",
        "--concurrency",
        "2",
        "--json",
    )
    assert command([str(a) for a in verify]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [v["context"]["method"] for v in found] == ["decode", "decode"]
    assert all(v["context"]["noise_floor"] <= EXACT for v in found)


def test_missing_tokens_are_asked_by_name(plugin_url: str, recorded: dict[str, Artifact]) -> None:
    """A narrow answer, completed by `logprob_token_ids`, holds every recorded token with the engine's own value."""

    async def work() -> tuple[ReplayResult, ReplayResult]:
        async with connect(plugin_url, Options(texts=False)) as connection:
            narrow = msgspec.structs.replace(
                connection, facts=msgspec.structs.replace(connection.facts, max_logprobs=2)
            )
            whole = await replay(connection, recorded["completion"], "prefill")
            filled = await replay(narrow, recorded["completion"], "prefill", fill=True)
            assert isinstance(whole, ReplayResult)
            assert isinstance(filled, ReplayResult)
            return whole, filled

    whole, filled = go(work())
    own = artifact_columns(recorded["completion"])
    assert missing(own, filled.columns)
    assert filled.scored is not None
    assert missing(own, filled.scored) == {}
    assert max_abs(pair(own, filled.scored)) <= EXACT
    assert missing(own, whole.columns) == {}


TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
        },
    },
}
CHOICES: dict[str, Any] = {
    "auto": "auto",
    "required": "required",
    "named": {"type": "function", "function": {"name": "weather"}},
}


def without_ids(reply: Any) -> Any:
    """A reply or chunk as data, less what the engine draws anew for each call."""
    text = json.dumps(reply.model_dump(exclude={"id", "created"}))
    return json.loads(re.sub(r'"chatcmpl-tool-[0-9a-f]+"', '"id"', text))


def tool_call(client: OpenAI, choice: Any, *, stream: bool) -> list[Any]:
    got = client.chat.completions.create(
        model="smollm2",
        messages=MESSAGES,
        max_tokens=48,
        temperature=0,
        tools=[TOOL],
        tool_choice=choice,
        stream=stream,
    )
    return [without_ids(one) for one in (got if stream else [got])]


def test_tool_calls_pass_unchanged_and_a_forced_one_says_why_it_is_not_replayed(
    plugin_url: str, tmp_path: Path
) -> None:
    """With "auto" the model is free, so its text replays; a forced call is under a grammar that no text replay has."""

    def ask(client: OpenAI) -> list[Any]:
        return [tool_call(client, c, stream=s) for c in CHOICES.values() for s in (False, True)]

    direct = ask(OpenAI(base_url=f"{plugin_url}/v1", api_key=KEY, max_retries=0))
    got, made = recordings(plugin_url, tmp_path, ask, 6)
    assert got == direct
    assert [bool(r[0]["choices"][0]["message"]["tool_calls"]) for r in got[::2]] == [False, True, True]
    found = go(verdicts_of(plugin_url, made, rules("decode")))
    for (answer, verdict), artifact in list(zip(found, made, strict=True))[:2]:
        assert artifact.logprobs is not None
        assert artifact.logprobs.mode == "raw"
        assert isinstance(answer, ReplayResult), answer
        assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.reasons
    for (answer, verdict), artifact in list(zip(found, made, strict=True))[2:]:
        assert artifact.logprobs is not None
        assert artifact.logprobs.mode == "constrained"
        assert outcomes(verdict, "S0a", "S4", "S6") == ["pass", "pass", "pass"]
        assert isinstance(answer, ReplayFailure)
        assert "a grammar over tool calls cannot be replayed" in answer.detail
        assert verdict.status == "inconclusive"


def test_each_of_n_choices_is_the_draw_of_a_seed_of_its_own(plugin_url: str, tmp_path: Path) -> None:
    """Choice i is drawn with seed + i: as itself it is replayed, under its neighbour's number it contradicts itself."""

    def ask(client: OpenAI) -> int:
        some = {"model": "smollm2", "max_tokens": 24, "seed": 21, "n": 3}
        client.chat.completions.create(messages=MESSAGES, temperature=1.0, **some)
        for _ in client.chat.completions.create(messages=MESSAGES, temperature=0.8, top_p=0.9, stream=True, **some):
            pass
        return len(client.completions.create(prompt=PROMPT, temperature=1.0, **some).choices)

    count, made = recordings(plugin_url, tmp_path, ask, 3, "--identity", "revision=main")
    assert {a.claim.model.revision for a in made} == {"main"}
    assert [(a.choice.n, a.choice.index) for a in made] == [(count, i) for _ in range(3) for i in range(count)]
    assert len({a.tokens.completion_ids for a in made}) == 9
    for _, verdict in go(verdicts_of(plugin_url, made, rules("prefill"))):
        assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.reasons
    for artifact in made:
        moved = msgspec.structs.replace(artifact.choice, index=(artifact.choice.index + 1) % count)
        swapped_ = seal(msgspec.structs.replace(artifact, choice=moved))
        assert next(f for f in offline.check(swapped_).findings if f.test == "S4").outcome == "fail"


@pytest.mark.parametrize("cuts", [{"top_k": 10}, {"top_p": 0.8}, {"top_k": 4, "temperature": 0.7, "min_p": 0.02}])
def test_processed_logprobs_are_recorded_and_replayed_as_such(
    plugin_url: str, tmp_path: Path, cuts: dict[str, Any]
) -> None:
    """What the request asks of the plugin is what the record states; raw rows of top-k 4 stated as processed fail."""
    sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, **cuts}

    def ask(client: OpenAI) -> None:
        for mode in ("processed_logprobs", "raw_logprobs"):
            body = {**sampling, "logprobs_mode": mode}
            client.completions.create(model="smollm2", prompt=PROMPT, max_tokens=24, seed=9, extra_body=body)

    _, (processed, raw) = recordings(plugin_url, tmp_path, ask, 2)
    assert [a.logprobs.mode for a in (processed, raw) if a.logprobs is not None] == ["processed", "raw"]
    assert processed.tokens.completion_ids == raw.tokens.completion_ids
    policy_ = msgspec.structs.replace(rules("decode"), mode="processed")
    ((answer, verdict),) = go(verdicts_of(plugin_url, [processed], policy_))
    assert isinstance(answer, ReplayResult), answer
    assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.reasons
    lie = msgspec.structs.replace(raw, logprobs=msgspec.structs.replace(raw.logprobs, mode="processed"))
    fits = next(f for f in offline.check(seal(lie)).findings if f.test == "S0c")
    assert fits.outcome == ("fail" if cuts.get("top_k") == 4 else "note"), fits


SYSTEM = "You are a pirate. Answer every question in rhymes about the sea."
ASKED = {"role": "user", "content": "Tell me about your morning, please. 🌊"}


def test_a_dropped_system_message_and_a_cut_prompt_are_explained(
    plugin_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """`verify --explain` on records whose model saw another prompt than they claim."""
    given = {"whole": [{"role": "system", "content": SYSTEM}, ASKED], "dropped": [ASKED]}
    given["empty"] = [{"role": "system", "content": ""}, ASKED]

    def ask(client: OpenAI) -> None:
        for messages in given.values():
            client.chat.completions.create(model="smollm2", messages=messages, max_tokens=24, seed=5)

    _, made = recordings(plugin_url, tmp_path, ask, 3)
    whole, *others = made
    prompt = whole.tokens.prompt_ids or ()

    def ask_end(client: OpenAI) -> None:
        client.completions.create(model="smollm2", prompt=list(prompt[-(len(prompt) // 2) :]), max_tokens=24, seed=5)

    others += recordings(plugin_url, tmp_path / "cut", ask_end, 1)[1]
    records, rules_file = tmp_path / "cheats.jsonl", tmp_path / "policy.json"
    artifact_files.write(records, [claiming(one, whole) for one in others])
    rules_file.write_bytes(dump(msgspec.structs.replace(rules("prefill"), expires_at="2999-01-01T00:00:00Z")))
    args = ("verify", records, "--engine", plugin_url, "--policy", rules_file, "--explain", "--json")
    assert command([str(a) for a in args]) == 1
    found = json.loads(capfd.readouterr().out)
    told = [next(f["detail"] for f in v["findings"] if f["test"] == "S5") for v in found]
    names = ("no system message", "an empty system message", "the last 50% of the prompt")
    assert [t.startswith(f"with {n} the distance would be 0.000") for t, n in zip(told, names, strict=True)] == [
        True
    ] * 3


def test_structured_output_is_calibrated_and_captured_by_the_commands(
    plugin_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A policy about logprobs under a grammar, from prompts that hold one."""
    prompts, fresh, rules_file = tmp_path / "p.jsonl", tmp_path / "f.jsonl", tmp_path / "policy.json"
    output = {"regex": "[a-z]{3,8}( [a-z]{3,8}){2}"}
    for path, names in ((prompts, range(14)), (fresh, range(20, 22))):
        path.write_text("".join(json.dumps({"text": f"Words {i}: ", "output": output}) + "\n" for i in names))
    claim = ("--dtype", "float32", "--runner", "v1", "--device", "cpu", "--eos-id", "2", "--max-tokens", "24")
    base = ("--engine", plugin_url, "-o", rules_file, "-k", K, "--concurrencies", "2", "--no-greedy", "--nonce", "c")
    assert command([str(a) for a in ("calibrate", prompts, *base, *claim)]) == 0
    assert "decode, constrained, width" in capfd.readouterr().out
    records = tmp_path / "r.parquet"
    asked = ("--requests", tmp_path / "r.requests")
    captured = ("capture", fresh, "-m", plugin_url, *asked, "-o", records, "-k", K, "--nonce", "n", *claim)
    assert command([str(a) for a in captured]) == 0
    assert command([str(a) for a in ("verify", records, "--engine", plugin_url, "--policy", rules_file, *asked)]) == 0
