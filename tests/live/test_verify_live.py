"""Verification against a real float32 engine: decode and prefill agree within EXACT, every edit is found."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from fakes.server import FakeServer, Reply, Seen
from logproof.cli.main import run as command
from logproof.client.connect import Connection, Options, connect
from logproof.verify.artifact.artifact import Artifact, Seed, artifact_columns, seal
from logproof.verify.artifact.replay_result import ReplayResult
from logproof.verify.audit.verify import verify
from logproof.verify.checks import recorded
from logproof.verify.policy import Policy
from logproof.verify.record.capture import Pins, capture
from logproof.verify.record.prompts import Prompt, prompts
from logproof.verify.record.stated_claim import StatedClaim, claim_of
from logproof.verify.replay.replay import replay
from logproof.verify.stats import distance, redraw
from logproof.verify.stats.sampler import Sampler
from proxy.running import call
from verify.builders import LOOSE, judged, own_request, policy

T = TypeVar("T")
JSON = {"content-type": "application/json"}
EXACT = 2e-4
"""Largest difference, nats, of decode and prefill logprobs of one float32 engine on a CPU (8e-5 was seen)."""
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TEXTS = ("Once upon a time", "写一首关于春天的诗", "The 🦊 jumped over", "def fibonacci(n):")
PROMPTS = prompts("\n".join(json.dumps({"text": t}) for t in TEXTS).encode())
CHAT = prompts(json.dumps({"messages": [{"role": "user", "content": "用一句话介绍猫 🐈"}]}).encode())
PINS = Pins(max_tokens=24, k=20, nonce="live")


def go(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def records(connection: Connection, given: list[Prompt], pins: Pins) -> list[Artifact]:
    stated = StatedClaim(dtype="float32", runner="v1", device="cpu", eos_ids=(0, 2))
    claim = claim_of(connection.facts, connection.model, stated)
    found = [c async for c in capture(connection, given, pins, claim, concurrency=2)]
    return [c.artifact for c in found if c.artifact is not None]


def rules(connection: Connection, **fields: object) -> Policy:
    return policy(model_id=connection.model, exact=EXACT, **{"requires": LOOSE, **fields})


@pytest.mark.parametrize(
    "sampler", [Sampler(1.0), Sampler(1.0, 30), Sampler(0.8, 0, 0.9), Sampler(1.3, 20, 0.95, 0.02), Sampler(0.0)]
)
def test_honest_artifacts_replay_exactly(engine_url: str, sampler: Sampler) -> None:
    async def work() -> None:
        async with connect(engine_url, Options(texts=False)) as connection:
            made = await records(connection, PROMPTS[1:3], msgspec.structs.replace(PINS, sampler=sampler))
            assert len(made) == 2
            for artifact in made:
                answer = await replay(connection, artifact, repeats=2)
                assert isinstance(answer, ReplayResult)
                assert answer.noise_floor == 0.0
                got = judged(artifact, answer, rules(connection), NOW)
                assert (got.status, got.level) == ("valid", "replayed"), got.reasons

    go(work())


def test_every_edited_token_is_found_at_its_position(engine_url: str) -> None:
    """S4 names the edited token, and the prefill parts from the record at the position behind it."""

    async def work() -> None:
        async with connect(engine_url, Options(texts=False)) as connection:
            (artifact,) = await records(connection, PROMPTS[:1], PINS)
            ids = list(artifact.tokens.completion_ids or ())
            for at in (0, len(ids) // 2, len(ids) - 2):
                cheat = edited(artifact, at, (ids[at] + 7) % 49000 + 3)
                answer = await replay(connection, cheat)
                assert isinstance(answer, ReplayResult)
                own = artifact_columns(cheat)
                pairs = distance.pair(own, answer.columns)
                assert int(distance.positions_over(pairs, EXACT)[0]) in (at, at + 1)
                got = judged(cheat, answer, rules(connection), NOW)
                assert got.status == "invalid"
                assert recorded.check(cheat).replayable

    go(work())


def edited(artifact: Artifact, at: int, token: int) -> Artifact:
    """The artifact with one other token, whose logprob the cheat does not report."""
    ids, rows = artifact.tokens.completion_ids, artifact.positions
    assert ids is not None
    assert rows is not None
    replace = msgspec.structs.replace
    changed = (*ids[:at], token, *ids[at + 1 :])
    silent = (*rows.sampled[:at], None, *rows.sampled[at + 1 :])
    return seal(
        replace(
            artifact,
            tokens=replace(artifact.tokens, completion_ids=changed),
            positions=replace(rows, sampled=silent),
        )
    )


def test_another_seed_is_found_without_any_engine(engine_url: str) -> None:
    async def work() -> list[Artifact]:
        async with connect(engine_url, Options(texts=False)) as connection:
            return await records(connection, PROMPTS[2:], PINS)

    for artifact in go(work()):
        seed = artifact.sampling.seed
        assert seed is not None
        assert judged(artifact, None, None, NOW).status == "inconclusive"
        other = msgspec.structs.replace(artifact.sampling, seed=Seed(value=seed.value + 1, origin="requester"))
        got = judged(seal(msgspec.structs.replace(artifact, sampling=other)), None, None, NOW)
        assert got.status == "invalid"
        hotter = msgspec.structs.replace(artifact.sampling, temperature=1.5)
        assert judged(seal(msgspec.structs.replace(artifact, sampling=hotter)), None, None, NOW).status == "invalid"


def test_chat_in_chinese_with_emoji(engine_url: str) -> None:
    async def work() -> None:
        async with connect(engine_url, Options(dialect="openai_chat", texts=False)) as chat:
            (artifact,) = await records(chat, CHAT, PINS)
            assert artifact.tokens.prompt_ids
        async with connect(engine_url, Options(texts=False)) as native:
            answer, verdict = await verify(native, artifact, rules(native), known=own_request(artifact))
            assert isinstance(answer, ReplayResult)
            assert (verdict.status, verdict.level) == ("valid", "replayed"), verdict.reasons

    go(work())


def test_the_draws_are_the_profile_s(engine_url: str) -> None:
    """The self-test of v1-cpu-splitmix: no honest token contradicts its own record."""

    async def work() -> list[Artifact]:
        async with connect(engine_url, Options(texts=False)) as connection:
            long = msgspec.structs.replace(PINS, max_tokens=100, ignore_eos=True, sampler=Sampler(1.0, 50))
            return await records(connection, PROMPTS[:2], long)

    tokens, made = 0, go(work())
    for artifact in made:
        checked = recorded.check(artifact).case
        assert checked is not None
        assert not isinstance(checked.sampler, str)
        assert checked.profile is not None
        assert artifact.sampling.seed is not None
        draw = redraw.redraw(
            artifact_columns(artifact),
            checked.sampler,
            checked.profile,
            artifact.sampling.seed.value,
            len(artifact.tokens.prompt_ids or ()),
        )
        assert redraw.first_violation(draw) is None
        tokens += int(draw.known.sum())
    assert tokens == 200


def test_the_commands_end_to_end(engine_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"text": f"{t} {i}"}) + "\n" for i in range(3) for t in TEXTS))
    claim = ("--dtype", "float32", "--runner", "v1", "--device", "cpu", "--max-tokens", "8")
    few = tmp_path / "few.jsonl"
    few.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
    rules_file, record = tmp_path / "policy.json", tmp_path / "a.parquet"

    def invoke(*args: object) -> int:
        return command([str(a) for a in args])

    assert (
        invoke(
            "calibrate",
            file,
            "--engine",
            engine_url,
            "-o",
            rules_file,
            "--concurrencies",
            "4",
            "--no-greedy",
            "--fixed",
            "--nonce",
            "c",
            *claim,
        )
        == 0
    )
    assert "an exact pair" in capfd.readouterr().out
    asked = ("--requests", tmp_path / "a.requests")
    assert invoke("capture", few, "-m", engine_url, "-o", record, "--fixed", "--nonce", "n", *asked, *claim) == 0
    assert invoke("verify", record, "--engine", engine_url, "--policy", rules_file, *asked) == 0


def cheating(fake: FakeServer, engine: str, edit: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """A provider in front of the engine. edit(request, reply): what it does to a call; an empty reply comes before."""

    def forward(seen: Seen) -> Reply:
        body = json.loads(seen.body) if seen.body else {}
        edit(body, {})
        answer = call(int(engine.rpartition(":")[2]), seen.method, seen.path, json.dumps(body).encode() or None, JSON)
        reply = json.loads(answer.body)
        if answer.status == 200:
            edit(body, reply)
        return Reply(answer.status, json=reply)

    for path in ("/version", "/v1/models", "/openapi.json", "/v1/completions"):
        fake.on(path, forward)


def hotter(body: dict[str, Any], reply: dict[str, Any]) -> None:
    """Samples at another temperature than it is asked for."""
    if body.get("temperature") == 1.0:
        body["temperature"] = 1.8


def other_word(body: dict[str, Any], reply: dict[str, Any]) -> None:
    """Puts another token into the text, with a logprob that fits its row."""
    if not reply.get("choices") or body.get("temperature") != 1.0:
        return
    choice, at = reply["choices"][0], 3
    row = choice["logprobs"]["top_logprobs"][at]
    name = next(n for n in sorted(row, key=row.get) if n != choice["logprobs"]["tokens"][at])
    choice["token_ids"][at] = int(name.removeprefix("token_id:"))
    choice["logprobs"]["tokens"][at], choice["logprobs"]["token_logprobs"][at] = name, row[name]


def cut(body: dict[str, Any], reply: dict[str, Any]) -> None:
    """Runs the end of the prompt alone, and reports its ids truthfully."""
    if not reply and isinstance(body.get("prompt"), str):
        body["prompt"] = body["prompt"][4:]


CHEATS = (
    (hotter, "do not give the recorded tokens"),
    (other_word, "do not give the recorded tokens"),
    (cut, "the recorded prompt is not the one that was requested"),
)


def test_audits_of_an_honest_and_three_dishonest_providers(
    engine_url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each audit against the first one: the honest provider stays as it was, the others are rejected at once."""
    few, many, rules_file = tmp_path / "few.jsonl", tmp_path / "many.jsonl", tmp_path / "policy.json"
    few.write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS[:3]))
    many.write_text("".join(json.dumps({"text": f"{t} {i}"}) + "\n" for i in range(4) for t in TEXTS[:3]))
    claim = ("--dtype", "float32", "--runner", "v1", "--device", "cpu", "--max-tokens", "12")

    def invoke(*args: object) -> int:
        return command([str(a) for a in args])

    made = ("calibrate", many, "--engine", engine_url, "-o", rules_file, "--concurrencies", "4", "--no-greedy")
    assert invoke(*made, "--nonce", "c", *claim) == 0
    base = ("--trusted", engine_url, "--policy", rules_file, "--prompts", few, "--nonce", "a", *claim)
    first, page = tmp_path / "first.json", tmp_path / "audit.html"
    assert invoke("audit", engine_url, *base, "--record", first) == 0
    assert invoke("audit", engine_url, *base, "--previous", first, "-o", page) == 0
    assert "nothing that matters" in page.read_text()
    for edit, reason in CHEATS:
        with FakeServer() as fake:
            cheating(fake, engine_url, edit)
            capfd.readouterr()
            assert invoke("audit", fake.url, *base, "--previous", first, "-o", page) == 1
        told = capfd.readouterr().out
        assert "Rejected after 1 of 3 planned requests" in told
        assert reason in told
        assert "changed: the audit was valid, is invalid" in told
        assert 'class="invalid"' in page.read_text()
    changed = json.loads(first.read_text())
    first.write_text(json.dumps({**changed, "fingerprint": "another"}))
    assert invoke("audit", engine_url, *base, "--previous", first) == 0
    assert "the earlier audit is stale" in capfd.readouterr().out
