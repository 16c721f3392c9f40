"""Crafted artifacts: none is judged valid, and none of the malformed ones reaches an engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.server import FakeServer
from logproof.cli.main import run as command
from logproof.errors import ArtifactError
from logproof.verify.artifact.artifact import Artifact, decode_artifact, encode_artifact, seal
from logproof.verify.audit.verify import verify
from logproof.verify.policy import dump
from logproof.verify.verdict import Verdict
from verify.builders import own_request, policy
from verify.parts import PINS, captured
from verify.tiny import TINY_VOCAB, Tiny, open_tiny, serve

Document = dict[str, Any]
RULES = policy(k=10)


@pytest.fixture(scope="module")
def honest() -> Iterator[tuple[FakeServer, Artifact]]:
    with FakeServer() as fake:
        serve(fake, Tiny())
        made = asyncio.run(captured(fake, PINS, 1))[0].artifact
        assert made is not None
        yield fake, made


def put(path: str, value: object) -> Callable[[Document], None]:
    """An edit that sets one value; the path's numbers are positions."""

    def edit(document: Document) -> None:
        *way, last = [int(p) if p.isdigit() else p for p in path.split("/")]
        at: Any = document
        for step in way:
            at = at[step]
        at[last] = value

    return edit


def cut(path: str, by: int = 1) -> Callable[[Document], None]:
    """An edit that leaves out the last elements of a list."""

    def edit(document: Document) -> None:
        *way, last = path.split("/")
        at: Any = document
        for step in way:
            at = at[step]
        del at[last][-by:]

    return edit


def both(*edits: Callable[[Document], None]) -> Callable[[Document], None]:
    return lambda document: [edit(document) for edit in edits] and None


def twice(document: Document) -> None:
    document["positions"]["ids"][3][1] = document["positions"]["ids"][3][0]


MALFORMED: dict[str, Callable[[Document], None]] = {
    "id below 0": put("tokens/completion_ids/4", -1),
    "id of the vocabulary's size": put("tokens/completion_ids/4", TINY_VOCAB),
    "id of 2**31": put("tokens/completion_ids/4", 2**31),
    "id of 2**70": put("tokens/prompt_ids/0", 2**70),
    "rival below 0": put("positions/ids/4/2", -7),
    "rival beyond the vocabulary": put("positions/ids/4/2", 10**9),
    "vocabulary of 2**40": both(put("claim/model/vocab_size", 2**40), put("tokens/completion_ids/4", 2**33)),
    "vocabulary of none": put("claim/model/vocab_size", 0),
    "no completion": both(
        put("tokens/completion_ids", []), put("positions", {"sampled": [], "ids": [], "logprobs": []})
    ),
    "no prompt": both(put("tokens/prompt_ids", []), put("end/usage/prompt", 0)),
    "a row too few": cut("positions/ids"),
    "a logprob too few": cut("positions/sampled"),
    "ten tokens hidden": both(cut("tokens/completion_ids", 10), put("end/usage/completion", 10)),
    "tokens padded": put("end/usage/completion", 900),
    "prompt counted short": put("end/usage/prompt", 1),
    "a rival twice": twice,
    "probability above 1": put("positions/logprobs/2/0", 0.7),
    "filler": put("positions/logprobs/2/9", -9999.0),
    "mass above 1": put("positions/logprobs/2", [-0.5] * 10),
    "a row cut short": both(put("positions/ids/2", [1]), put("positions/logprobs/2", [-1.0])),
    "a row of forty": both(put("positions/ids/2", list(range(40))), put("positions/logprobs/2", [-8.0] * 40)),
    "more digits than float32": put("positions/logprobs/2/9", -7.123456789012345),
    "two values for one token": put("positions/sampled/2", -17.5),
    "step of 9 nats": put("logprobs/step", 9.0),
    "width of a million": put("logprobs/k", 10**6),
    "steps of none": both(put("logprobs/format", "fixed"), put("logprobs/denominator", 0)),
    "logprobs without a spec": put("logprobs", None),
    "choice 3 of 1": put("choice/index", 3),
    "no choice": put("choice/n", 0),
    "temperature below 0": put("sampling/temperature", -1.0),
    "top_p of 0": put("sampling/top_p", 0.0),
    "top_p of 2": put("sampling/top_p", 2.0),
    "min_p of 5": put("sampling/min_p", 5.0),
    "seed of another derivation": put("sampling/seed/value", 3),
    "a bias on a word": put("sampling/logit_bias", {"cat": 1.0}),
    "a source without a value": put("sampling/sources", {"seed": "operator"}),
}
"""Edits that S0a must find: sealed again, so that no digest tells."""


def crafted(honest: Artifact, edit: Callable[[Document], None]) -> Artifact:
    document = json.loads(encode_artifact(honest))
    edit(document)
    return seal(decode_artifact(json.dumps({**document, "seal": None})))


def judged(fake: FakeServer, artifact: Artifact) -> Verdict:
    async def work() -> Verdict:
        async with open_tiny(fake) as connection:
            return (await verify(connection, artifact, RULES, known=own_request(artifact)))[1]

    return asyncio.run(work())


def test_the_unedited_artifact_is_valid(honest: tuple[FakeServer, Artifact]) -> None:
    assert judged(honest[0], crafted(honest[1], lambda document: None)).status == "valid"


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_artifacts_are_invalid_and_reach_no_engine(honest: tuple[FakeServer, Artifact], name: str) -> None:
    fake, made = honest
    before = len(fake.seen)
    got = judged(fake, crafted(made, MALFORMED[name]))
    assert (got.status, got.findings[0].test) == ("invalid", "S0a")
    assert len(fake.seen) == before


FALSE: dict[str, Callable[[Document], None]] = {
    "stop without an end": put("end/finish_reason", "stop"),
    "an end inside": put("tokens/completion_ids/4", 0),
    "length before the limit": put("sampling/max_tokens", 400),
    "beyond the limit": put("sampling/max_tokens", 5),
    "greedy": put("sampling/temperature", 0.0),
    "hotter": put("sampling/temperature", 1.4),
    "another token": put("tokens/completion_ids/4", 8),
    "another prompt": put("tokens/prompt_ids/2", 9),
    "another choice": both(put("choice/n", 2), put("choice/index", 1)),
    "another seed": put("sampling/seed", {"value": 5, "origin": "requester"}),
    "logprobs moved": put("positions/logprobs/2/9", -9.5),
}
"""Edits that keep the artifact's rules and lie."""


@pytest.mark.parametrize("name", FALSE)
def test_false_artifacts_are_invalid(honest: tuple[FakeServer, Artifact], name: str) -> None:
    edit = FALSE[name] if name != "an end inside" else both(FALSE[name], put("sampling/ignore_eos", False))
    assert judged(honest[0], crafted(honest[1], edit)).status == "invalid"


OPEN: dict[str, Callable[[Document], None]] = {
    "no ids": both(put("tokens/completion_ids", None), put("positions", None), put("logprobs", None)),
    "no logprobs": both(put("positions", None), put("logprobs", None)),
    "mode unknown": put("logprobs/mode", "unknown"),
    "processed": put("logprobs/mode", "processed"),
    "constrained": put("logprobs/mode", "constrained"),
    "temperature unresolved": put("sampling/temperature", None),
    "penalty unresolved": put("sampling/presence_penalty", None),
    "another model": put("claim/model/id", "gpt-9"),
    "executor's seed": put("sampling/seed/origin", "executor"),
    "no finish": put("end/finish_reason", None),
}
"""Edits that take evidence away."""


@pytest.mark.parametrize("name", OPEN)
def test_missing_evidence_is_no_proof(honest: tuple[FakeServer, Artifact], name: str) -> None:
    got = judged(honest[0], crafted(honest[1], OPEN[name]))
    assert (got.status, got.level) != ("valid", "replayed")
    assert got.status != "valid" or name == "executor's seed"


UNREADABLE: dict[str, Callable[[Document], None]] = {
    "id as text": put("tokens/completion_ids/4", "5"),
    "id as bool": put("tokens/completion_ids/4", True),
    "id as fraction": put("tokens/completion_ids/4", 1.5),
    "unknown key": put("extra", 1),
    "another schema": put("schema", "logproof-artifact/2"),
    "mode of its own": put("logprobs/mode", "honest"),
    "rows as text": put("positions/ids", "12"),
    "source of its own": put("sampling/sources", {"top_p": "trust me"}),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_artifacts_are_refused(honest: tuple[FakeServer, Artifact], name: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        crafted(honest[1], UNREADABLE[name])


@pytest.mark.parametrize("data", [b"{", b"[]\n", b"[" * 200_000, b"\xff\xfe", b'{"schema": 1e999}', b"null", b"{}\n{}"])
def test_the_command_survives_any_file(data: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rules, path = tmp_path / "p.json", tmp_path / "a.jsonl"
    rules.write_bytes(dump(RULES))
    for name, code in ((path, 1), (path.with_suffix(".parquet"), 3)):
        name.write_bytes(data)
        assert command(["verify", str(name), "--policy", str(rules), "--offline"]) == code
        assert "Traceback" not in capfd.readouterr().err
