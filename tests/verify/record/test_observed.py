from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from logproof.errors import ArtifactError, BadReply
from logproof.ir.facts import Facts, Plugin
from logproof.proxy import headers
from logproof.verify.artifact.artifact import Artifact, Claim, ModelClaim, RecordedSampling
from logproof.verify.checks import structure
from logproof.verify.record.defaults import Defaults, merged, neutral, of_config, of_engine, stated
from logproof.verify.record.observed import ObservedExchange, artifacts_of
from proxy.pairs import NAMES, pair

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
VLLM = Facts(engine="vllm", version="0.32.0", logprobs_mode="raw", vocab_size=49152)
CLAIM = Claim(model=ModelClaim(id="smollm2", vocab_size=49152))
WHEN = datetime(2026, 11, 30, tzinfo=UTC)


def seen(name: str, **changes: object) -> ObservedExchange:
    found = pair(name)
    body = json.dumps({**found.request, **found.asks}).encode()
    reply = found.asked.encode()
    values = {
        "path": found.path,
        "body": body,
        "reply": reply,
        "streamed": found.streamed,
        "width": 3,
        "when": WHEN,
        "request_sha256": hashlib.sha256(body).hexdigest(),
        "reply_sha256": hashlib.sha256(reply).hexdigest(),
        **changes,
    }
    return ObservedExchange(**values)


def made(name: str, facts: Facts = VLLM, **changes: object) -> list[Artifact]:
    return artifacts_of(seen(name, **changes), facts, CLAIM, "http://e")


@pytest.mark.parametrize("name", NAMES)
def test_artifacts_are_sound_and_hold_ids_and_rows(name: str) -> None:
    for artifact in made(name):
        assert structure.faults(artifact) == []
        assert artifact.positions is not None
        assert artifact.tokens.prompt_ids
        assert artifact.tokens.completion_ids is not None
        n = len(artifact.tokens.completion_ids)
        assert len(artifact.positions.ids) == len(artifact.positions.sampled) == n > 0
        if name != "chat_json":
            assert {len(row) for row in artifact.positions.ids} <= {3, 4}
        assert artifact.provenance.request_sha256 == seen(name).request_sha256
        assert artifact.provenance.response_sha256 == seen(name).reply_sha256
        assert artifact.provenance.streamed is pair(name).streamed


def test_plain_and_streamed_say_the_same() -> None:
    (plain,), (streamed,) = made("chat"), made("chat_stream")
    assert (plain.tokens, plain.positions, plain.end.finish_reason) == (
        streamed.tokens,
        streamed.positions,
        streamed.end.finish_reason,
    )
    assert (plain.end.usage.completion, streamed.end.usage.completion) == (6, None)


def test_choices_and_prompts_become_an_artifact_each() -> None:
    assert [(a.choice.n, a.choice.index) for a in made("completion_n2")] == [(2, 0), (2, 1)]
    batch = made("completion_batch")
    assert [(a.choice.n, a.choice.index) for a in batch] == [(1, 0), (1, 0)]
    assert len({a.artifact_id for a in batch}) == len({a.tokens.prompt_ids for a in batch}) == 2


def test_masked_logprobs_are_not_called_raw() -> None:
    (artifact,) = made("chat_json")
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == "constrained"
    assert len(artifact.sampling.structured_output or "") == 64


def test_a_constrained_text_that_was_cut_is_a_record_like_any_other() -> None:
    reply = json.loads(pair("chat_json").asked)
    reply["choices"][0]["message"]["content"] = '{"half'
    reply["choices"][0]["finish_reason"] = "length"
    (artifact,) = made("chat_json", reply=json.dumps(reply).encode())
    assert (artifact.provenance.text, artifact.end.finish_reason) == ('{"half', "length")
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == "constrained"


@pytest.mark.parametrize(
    ("change", "mode"),
    [
        ({"temperature": 1}, "raw"),
        ({"temperature": 0.5}, "unknown"),
        ({"temperature": 1, "top_p": 0.5}, "unknown"),
        ({"temperature": 1, "top_k": 5}, "unknown"),
        ({"temperature": 1, "presence_penalty": 0.5}, "unknown"),
        ({"temperature": 1, "logit_bias": {"3": 1}}, "unknown"),
    ],
)
def test_logprobs_of_a_server_that_does_not_tell_are_raw_only_without_cuts(
    change: dict[str, object], mode: str
) -> None:
    found = pair("completion")
    plain = {k: v for k, v in found.request.items() if k in ("model", "prompt", "max_tokens")}
    body = json.dumps({**plain, **found.asks, **change}).encode()
    (artifact,) = made("completion", Facts(), body=body)
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == mode


def test_the_measured_mode_is_written() -> None:
    (artifact,) = made("completion", Facts(engine="vllm", logprobs_mode="processed"))
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == "processed"
    masked_facts = Facts(engine="vllm", logprobs_mode="processed")
    (masked,) = made("chat_json", masked_facts)
    assert masked.logprobs is not None
    assert masked.logprobs.mode == "unknown"
    bare = artifacts_of(seen("chat", reply=pair("chat").direct.encode(), width=None), masked_facts, CLAIM, "http://e")
    assert bare[0].logprobs is None


@pytest.mark.parametrize("name", ["chat", "completion", "chat_stream"])
def test_a_reply_without_logprobs_holds_what_there_is(name: str) -> None:
    for facts in (VLLM, Facts()):
        (artifact,) = made(name, facts, reply=pair(name).direct.encode(), width=None)
        assert (artifact.positions, artifact.logprobs, artifact.tokens.completion_ids) == (None, None, None)
        assert artifact.provenance.text


def test_a_cut_stream_is_no_artifact() -> None:
    with pytest.raises(BadReply):
        made("chat_stream", reply=pair("chat_stream").asked.encode()[:2000])
    with pytest.raises(BadReply, match="cut"):
        made("chat_stream", reply=pair("chat_stream").asked.encode().replace(b"data: [DONE]\n\n", b""))


def test_a_stream_that_lost_ids_is_no_scored_artifact() -> None:
    events = pair("chat_stream").asked.split("\n\n")
    usage = 'data: {"choices":[],"usage":{"prompt_tokens":38,"completion_tokens":6,"total_tokens":44}}'
    at = next(i for i, e in enumerate(events) if "[DONE]" in e)
    whole = [*events[:at], usage, *events[at:]]
    (artifact,) = made("chat_stream", reply="\n\n".join(whole).encode())
    assert artifact.end.usage.completion == 6
    short = [e for i, e in enumerate(whole) if i != 2]
    with pytest.raises(BadReply, match="5 scored tokens, usage says 6"):
        made("chat_stream", reply="\n\n".join(short).encode())


@pytest.mark.parametrize("body", [b"[]", b"\xff", b"{"])
def test_a_request_that_cannot_be_read_is_no_artifact(body: bytes) -> None:
    with pytest.raises(ArtifactError, match="no JSON object"):
        made("chat", body=body)


def test_other_routes_are_no_artifacts() -> None:
    with pytest.raises(ArtifactError, match="/v1/embeddings"):
        made("chat", path="/v1/embeddings")


def test_a_batch_with_a_choice_too_few_is_refused() -> None:
    body = json.dumps({"model": "m", "prompt": ["a", "b", "c"]}).encode()
    with pytest.raises(ArtifactError, match="2 choices for 3 prompts"):
        made("completion_batch", body=body)


def resolved(name: str, facts: Facts = VLLM, gaps: Defaults | None = None, **changes: object) -> RecordedSampling:
    return artifacts_of(seen(name, **changes), facts, CLAIM, "http://e", gaps)[0].sampling


def without(name: str, *fields: str) -> bytes:
    found = pair(name)
    return json.dumps({k: v for k, v in {**found.request, **found.asks}.items() if k not in fields}).encode()


LEAVES = ("temperature", "max_tokens", "top_p")


def test_known_defaults_resolve_every_gap_and_say_where_from() -> None:
    facts = msgspec.structs.replace(VLLM, max_model_len=2048)
    gaps = merged(of_engine({"temperature": 1.0}), neutral(), stated({"top_k": 50}))
    found = resolved("completion", facts, gaps, body=without("completion", *LEAVES))
    assert found.unresolved() == ()
    assert (found.temperature, found.top_k, found.max_tokens) == (1.0, 50, 16)
    assert {found.sources[n] for n in ("temperature", "top_k", "max_tokens", "ignore_eos")} == {
        "engine",
        "operator",
        "protocol",
    }
    assert structure.faults(artifacts_of(seen("completion"), facts, CLAIM, "http://e", gaps)[0]) == []


def test_a_chat_without_a_limit_ends_at_the_context() -> None:
    facts = msgspec.structs.replace(VLLM, max_model_len=2048)
    prompt = len(made("chat")[0].tokens.prompt_ids or ())
    body = without("chat", "max_tokens")
    found = resolved("chat", facts, neutral(), body=body)
    assert (found.max_tokens, found.sources["max_tokens"]) == (2048 - prompt, "engine")
    assert resolved("chat", facts, body=body).max_tokens is None
    assert resolved("chat", VLLM, neutral(), body=body).max_tokens is None
    config = of_config(b'{"max_new_tokens": 77}')
    assert resolved("chat", facts, config, body=body).max_tokens == 77
    tight = msgspec.structs.replace(VLLM, max_model_len=prompt + 9)
    assert resolved("chat", tight, config, body=body).max_tokens == 9
    assert resolved("chat", msgspec.structs.replace(VLLM, max_model_len=1), config, body=body).max_tokens == 77
    plain = resolved("chat", Facts(engine="openai", max_model_len=2048), stated({"max_tokens": 5}), body=body)
    assert (plain.max_tokens, plain.sources["max_tokens"]) == (5, "operator")


def test_more_choices_than_a_byte_counts_become_artifacts() -> None:
    """vLLM takes an n of thousands."""
    found = pair("completion_n2")
    reply = json.loads(found.asked)
    reply["choices"] = [{**reply["choices"][0], "index": i} for i in range(300)]
    reply["usage"] = None
    body = json.dumps({**found.request, **found.asks, "n": 300}).encode()
    artifacts = made("completion_n2", body=body, reply=json.dumps(reply).encode())
    assert len({a.artifact_id for a in artifacts}) == 300


def cut(name: str) -> bytes:
    """The reply as an engine gives it that reports processed logprobs after top-k 2: other rivals at -9999."""
    reply = json.loads(pair(name).asked)
    lists = reply["choices"][0]["logprobs"]
    if "content" in lists:
        for entry in lists["content"]:
            low = sorted(entry["top_logprobs"], key=lambda r: -float(r["logprob"]))[2:]
            for rival in low:
                rival["logprob"] = entry["logprob"] if rival["token"] == entry["token"] else -9999.0
    else:
        for token, row in zip(lists["tokens"], lists["top_logprobs"], strict=True):
            for rival in sorted(row, key=lambda r: -float(row[r]))[2:]:
                row[rival] = row[rival] if rival == token else -9999.0
    return json.dumps(reply).encode()


@pytest.mark.parametrize("name", ["completion", "chat"])
def test_rows_that_a_cut_left_short_are_processed_ones(name: str) -> None:
    """By the deployment, or by what the request asks of the plugin; a raw row with an impossible rival is refused."""
    plugin = Plugin(version="0.1", enforced_replay=True, logprobs_mode=True, default_mode="raw_logprobs")
    body = {**pair(name).request, **pair(name).asks, "logprobs_mode": "processed_logprobs"}
    asked = {"body": json.dumps(body).encode(), "reply": cut(name)}
    deployed = Facts(engine="vllm", logprobs_mode="processed")
    for facts, changes in ((deployed, {"reply": cut(name)}), (replace(VLLM, plugin=plugin), asked)):
        (artifact,) = made(name, facts, **changes)
        assert artifact.logprobs is not None
        assert artifact.positions is not None
        assert artifact.logprobs.mode == "processed"
        assert max(artifact.positions.kept or ()) <= 3
    for facts, changes in ((VLLM, {"reply": cut(name)}), (VLLM, asked)):
        with pytest.raises(BadReply, match="impossible"):
            made(name, facts, **changes)
    raw = {**body, "logprobs_mode": "raw_logprobs"}
    (artifact,) = made(name, replace(deployed, plugin=plugin), body=json.dumps(raw).encode())
    assert artifact.logprobs is not None
    assert artifact.logprobs.mode == "raw"


def test_blanked_parts_of_a_request_are_named() -> None:
    """A body that is not the one digested says where it was blanked; the same words of a client's own are its own."""
    found = pair("chat")
    blank = headers.mask(b"sk-secret", [b"sk-secret"]).decode()
    messages = [{"role": "user", "content": f"my key is {blank}"}, {"role": "user", "content": "hi"}]
    body = json.dumps({**found.request, **found.asks, "messages": messages, "a/b": ["x", blank]}).encode()
    (artifact,) = made("chat", body=body, request_sha256="0" * 64)
    assert artifact.request.redactions == ("/messages/0/content", "/a~1b/1")
    assert artifact.provenance.request_sha256 == "0" * 64, "the digest is of the exact bytes"
    (own,) = made("chat", body=body, request_sha256=hashlib.sha256(body).hexdigest())
    assert own.request.redactions == ()
