"""Records whose request asks for something else than they hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.server import FakeServer
from logproof.errors import REDACTED
from logproof.verify.artifact.artifact import Artifact, Seed, Source
from logproof.verify.artifact.known_request import KnownRequest, RequestSource
from logproof.verify.checks.case import ServerStatement, TrustedFacts
from logproof.verify.checks.end import end_finding
from logproof.verify.checks.request_match import differences, request_finding
from logproof.verify.record.capture import Pins
from logproof.verify.stats.sampler import Sampler
from logproof.verify.verdict import Finding, Verdict
from verify.builders import change, judged, quick
from verify.parts import NOW, TINY_POLICY, one, replayed, run
from verify.tiny import Tiny, serve

replace = msgspec.structs.replace


def asked(made: Artifact, **fields: object) -> Artifact:
    """The record with another request beside it; a field that is None is left out."""
    assert isinstance(made.request.body, dict)
    body = {name: value for name, value in {**made.request.body, **fields}.items() if value is not None}
    return change(made, request=replace(made.request, body=body))


def facts_of(made: Artifact, source: RequestSource) -> TrustedFacts:
    """What a verifier knows who sent the recorded request, or has it from the requester."""
    return TrustedFacts(known=KnownRequest(path=made.request.path, body=made.request.body, source=source))


def verdict(fake: FakeServer, made: Artifact) -> Verdict:
    """By a verifier who sent the request that stands in the record."""
    return judged(made, run(replayed(fake, made)), TINY_POLICY, NOW)


@pytest.fixture
def honest(fake: FakeServer) -> Artifact:
    serve(fake, Tiny())
    return one(fake)


def test_an_honest_record_is_what_was_asked(fake: FakeServer, honest: Artifact) -> None:
    assert (verdict(fake, honest).status, verdict(fake, honest).level) == ("valid", "replayed")


OTHERS: dict[str, Any] = {
    "temperature": 0.2,
    "top_p": 0.9,
    "top_k": 7,
    "min_p": 0.1,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "repetition_penalty": 1.1,
    "logit_bias": {"5": -100},
    "max_tokens": 40,
    "min_tokens": 3,
    "stop": ["\n"],
    "stop_token_ids": [7],
    "bad_words": ["cat"],
    "allowed_token_ids": [1, 2, 3],
    "ignore_eos": False,
    "n": 2,
    "seed": 12,
    "response_format": {"type": "json_object"},
    "structured_outputs": {"choice": ["a", "b"]},
    "logprobs": 4,
    "logprobs_mode": "processed_logprobs",
    "enforced_token_ids": [1, 2, 3],
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_request_for_something_else_is_a_contradiction(fake: FakeServer, honest: Artifact, name: str) -> None:
    assert verdict(fake, asked(honest, **{name: OTHERS[name]})).status == "invalid"


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k", "repetition_penalty", "max_tokens", "logprobs"])
def test_a_leaf_that_was_never_asked_is_not_the_requests(fake: FakeServer, honest: Artifact, name: str) -> None:
    assert verdict(fake, asked(honest, **{name: None})).status == "invalid"


def test_a_seed_is_the_requesters_only_where_the_request_holds_it(fake: FakeServer, honest: Artifact) -> None:
    claimed = honest.sampling.seed
    assert claimed is not None
    mine = Seed(value=claimed.value, origin="requester")
    made = change(honest, sampling=replace(honest.sampling, seed=mine))
    assert verdict(fake, made).status == "valid"
    for seed in (None, claimed.value + 1):
        assert verdict(fake, asked(made, seed=seed)).status == "invalid"
    left_out = change(honest, sampling=replace(honest.sampling, seed=None))
    assert verdict(fake, left_out).status == "invalid"


def test_another_model_is_not_taken_on_the_records_word(fake: FakeServer, honest: Artifact) -> None:
    """Where the verifier wrote the record itself, `--claim` is its own word; a record of others only claims it."""
    made = asked(honest, model="large")
    assert verdict(fake, made).status == "valid"
    finding = request_finding(made)
    assert (finding.outcome, finding.reason) == ("unknown", "request_unclear")
    assert "the request names the model large, and only the record says that it is tiny" in finding.detail
    nameless = request_finding(asked(honest, model=None))
    assert (nameless.outcome, nameless.detail) == ("unknown", "the request names no model, the record claims tiny")


@pytest.mark.parametrize("source", ["engine", "generation_config", "operator"])
def test_defaults_are_the_verifiers_own_word_or_unclear(honest: Artifact, source: Source) -> None:
    left_out = asked(honest, top_p=None)
    sources = {**honest.sampling.sources, "top_p": source}
    made = change(left_out, sampling=replace(honest.sampling, sources=sources))
    found = request_finding(made)
    assert (found.outcome, found.detail) == (
        "unknown",
        f"the request leaves out, and only the record says: top_p ({source})",
    )
    assert request_finding(made, facts_of(made, "own")).outcome == "pass"
    assert request_finding(made, facts_of(made, "file")).outcome == "unknown"


def test_what_the_verifier_states_is_not_the_records_word(honest: Artifact) -> None:
    sources = {**honest.sampling.sources, "top_p": "engine", "max_tokens": "engine"}
    left_out = asked(honest, top_p=None, max_tokens=None, model="served")
    made = change(left_out, sampling=replace(honest.sampling, sources=sources))
    server = ServerStatement(defaults={"top_p": 1, "max_tokens": 20}, served_as=("served",))
    facts = TrustedFacts(server=server)
    assert (request_finding(made, facts).outcome, end_finding(made, facts).outcome) == ("pass", "pass")
    for other in (
        replace(server, defaults={"top_p": 0.9, "max_tokens": 20}),
        replace(server, defaults={"max_tokens": 20}),
        replace(server, served_as=("tiny2",)),
    ):
        assert request_finding(made, TrustedFacts(server=other)).outcome == "unknown"
    longer = TrustedFacts(server=replace(server, defaults={"max_tokens": 500}))
    assert end_finding(made, longer).outcome == "unknown"


def test_a_limit_that_a_text_did_not_reach_matters_to_nobody(honest: Artifact) -> None:
    sampling = replace(honest.sampling, max_tokens=400, sources={**honest.sampling.sources, "max_tokens": "engine"})
    made = change(asked(honest, max_tokens=None), sampling=sampling)
    assert request_finding(made).outcome == "pass"
    cut = change(made, sampling=replace(sampling, max_tokens=len(honest.tokens.completion_ids or ())))
    assert (request_finding(cut).outcome, end_finding(cut).outcome) == ("pass", "unknown")


def test_a_leaf_of_no_source_is_unclear_and_none_is_made_by_a_protocol(honest: Artifact) -> None:
    bare = change(asked(honest, top_p=None), sampling=replace(honest.sampling, sources={}))
    assert request_finding(bare, facts_of(bare, "own")).outcome == "unknown"
    made = change(bare, sampling=replace(honest.sampling, sources={"top_p": "protocol"}))
    assert request_finding(made, facts_of(made, "own")).outcome == "fail"
    limit = asked(honest, max_tokens=None)
    for value, outcome in ((16, "pass"), (20, "fail")):
        sampling = replace(honest.sampling, max_tokens=value, sources={"max_tokens": "protocol"})
        assert request_finding(change(limit, sampling=sampling)).outcome == outcome


def test_a_limit_below_the_requested_one_is_the_contexts_and_explains_no_end(honest: Artifact) -> None:
    asked_more = asked(honest, max_tokens=500)
    sources = {**honest.sampling.sources, "max_tokens": "engine"}
    capped = change(asked_more, sampling=replace(honest.sampling, sources=sources))
    facts = facts_of(capped, "own")
    assert request_finding(capped, facts).outcome == "pass"
    assert end_finding(capped, facts).outcome == "unknown"
    above = change(asked(capped, max_tokens=5), seal=None)
    assert request_finding(above, facts_of(above, "own")).outcome == "fail"


@pytest.mark.parametrize("name", ["request", "protocol", "operator"])
def test_an_invented_stop_is_never_taken(fake: FakeServer, honest: Artifact, name: Source) -> None:
    """A text that was cut and claims a stop string that nobody asked for."""
    last = (honest.tokens.completion_ids or ())[-1]
    for leaf, value in (("stop", ("x",)), ("stop_token_ids", (last,))):
        body = asked(honest, **{leaf: None})
        sampling = replace(honest.sampling, **{leaf: value}, sources={**honest.sampling.sources, leaf: name})
        made = change(body, sampling=sampling, end=replace(honest.end, finish_reason="stop"))
        found = request_finding(made)
        assert found.outcome == ("unknown" if name == "operator" else "fail")
        assert end_finding(made).outcome != "pass"


def test_given_tokens_were_not_drawn(honest: Artifact) -> None:
    made = asked(honest, enforced_token_ids=list(honest.tokens.completion_ids or ()))
    found = request_finding(made, facts_of(made, "own"))
    assert (found.outcome, found.detail) == (
        "unknown",
        "the request gives the tokens (enforced_token_ids); they were not drawn",
    )
    beams = asked(honest, use_beam_search=True, best_of=1)
    found = request_finding(beams, facts_of(beams, "own"))
    assert (found.outcome, found.detail) == (
        "unknown",
        "the request states use_beam_search, which the record has no place for",
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dialect": "toy"}, "toy are not read"),
        ({"path": "/v1/other"}, "sends nothing to /v1/other"),
        ({"body": None}, "no JSON object"),
        ({"body": {"stop": 5}}, "cannot be read"),
        ({"body": {"n": True}}, "no number of choices"),
    ],
)
def test_a_request_that_cannot_be_read_shows_nothing(honest: Artifact, changes: dict[str, Any], words: str) -> None:
    made = change(honest, request=replace(honest.request, **changes))
    found = request_finding(made, facts_of(made, "own"))
    assert (found.outcome, found.reason) == ("unknown", "request_unclear")
    assert words in found.detail


def test_a_text_that_was_blanked_is_unclear(honest: Artifact) -> None:
    made = change(asked(honest, stop=[REDACTED]), seal=None)
    blanked = change(made, request=replace(made.request, redactions=("/stop/0",)))
    assert request_finding(made).outcome == "fail"
    found = request_finding(blanked)
    assert (found.outcome, found.detail) == ("unknown", "/stop of the request was blanked")
    false = change(
        asked(honest, stop=["x"]), request=replace(asked(honest, stop=["x"]).request, redactions=("/stop/0",))
    )
    assert request_finding(false).outcome == "fail"


@pytest.mark.parametrize(
    ("fields", "engine", "k", "outcome"),
    [
        ({"logprobs": True, "top_logprobs": 11}, "vllm", 10, "pass"),
        ({"logprobs": True, "top_logprobs": 10}, "vllm", 10, "fail"),
        ({"logprobs": True, "top_logprobs": 12}, "vllm", 10, "fail"),
        ({"logprobs": True, "top_logprobs": 20}, "openai", 20, "pass"),
        ({"logprobs": True, "top_logprobs": 20}, "vllm", 20, "fail"),
        ({"logprobs": True}, "vllm", 0, "pass"),
        ({"top_logprobs": 0}, "vllm", 0, "pass"),
        ({"logprobs": True, "top_logprobs": 5, "return_tokens_as_token_ids": None}, "vllm", 0, "pass"),
        ({"logprobs": False}, "vllm", 0, "fail"),
        ({}, "vllm", 0, "fail"),
    ],
)
def test_the_width_of_a_chat(honest: Artifact, fields: dict[str, object], engine: str, k: int, outcome: str) -> None:
    assert isinstance(honest.request.body, dict)
    body = {name: value for name, value in honest.request.body.items() if name not in ("logprobs", "prompt")}
    request = replace(honest.request, dialect="openai_chat", path="/v1/chat/completions", body={**body, **fields})
    claim = replace(honest.claim, engine=replace(honest.claim.engine, name=engine))
    made = change(honest, request=request, claim=claim, logprobs=replace(honest.logprobs, k=k))
    assert request_finding(made).outcome == outcome


def test_sglangs_own_route_is_read_in_its_inner_object(honest: Artifact) -> None:
    assert isinstance(honest.request.body, dict)
    outer = ("prompt", "model", "logprobs", "return_token_ids", "return_tokens_as_token_ids")
    inner = {name: value for name, value in honest.request.body.items() if name not in outer}
    inner |= {"max_new_tokens": inner.pop("max_tokens"), "min_new_tokens": inner.pop("min_tokens")}
    inner["sampling_seed"] = inner.pop("seed")
    body = {"text": "x", "sampling_params": inner, "return_logprob": True, "top_logprobs_num": 10}

    def found(**changes: object) -> str:
        told = {**body, "sampling_params": {**inner, **changes}}
        request = replace(honest.request, dialect="sglang_native", path="/generate", body=told)
        return request_finding(change(honest, request=request)).outcome

    assert found() == "pass"
    for changes in ({"temperature": 0.2}, {"max_new_tokens": 9}, {"sampling_seed": 1}, {"n": 2}, {"regex": "a"}):
        assert found(**changes) == "fail"


def test_the_requesters_own_request_is_the_recorded_one(honest: Artifact) -> None:
    def found(**changes: object) -> Finding:
        known = KnownRequest(path=honest.request.path, body=honest.request.body, source="own")
        return request_finding(honest, TrustedFacts(known=replace(known, **changes)))

    assert isinstance(honest.request.body, dict)
    body = honest.request.body
    assert found().outcome == "pass"
    assert found(body={**body, "temperature": 1}).outcome == "pass"
    other = found(path="/v1/chat/completions")
    assert (other.outcome, other.reason) == ("fail", "request")
    for changes, at in (
        ({"prompt": "another"}, "/prompt"),
        ({"stop": ["a"], "top_k": 3}, "/stop"),
        ({"a/b": None}, "/a~1b"),
        ({"ignore_eos": 1}, "/ignore_eos"),
    ):
        other = found(body={**body, **changes})
        assert (other.outcome, other.detail) == ("fail", f"{at} of the recorded request is not what the requester sent")
    assert "the body of the recorded request" in found(body=None).detail


def test_a_request_that_differs_only_where_it_was_blanked_is_unclear(honest: Artifact) -> None:
    made = asked(honest, prompt=f"my key is {REDACTED}")
    blanked = change(made, request=replace(made.request, redactions=("/prompt",)))
    for record, outcome in ((made, "fail"), (blanked, "unknown")):
        known = KnownRequest(path=made.request.path, body=honest.request.body, source="own")
        assert request_finding(record, TrustedFacts(known=known)).outcome == outcome


def test_pointers_of_nested_values() -> None:
    left = {"messages": [{"role": "user", "content": "a"}, {"role": "user"}], "b": [1, 2]}
    right = {"messages": [{"role": "user", "content": "b"}, {"role": "user"}], "b": [1]}
    assert list(differences(left, right)) == ["/b", "/messages/0/content"]
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert list(differences({"a": deep}, {"a": 1})) == ["/a"]


settings_of_a_request = st.fixed_dictionaries(
    {
        "sampler": st.builds(
            Sampler,
            st.sampled_from([0.0, 0.3, 1.0, 1.5]),
            st.sampled_from([0, 5, 40]),
            st.sampled_from([0.8, 1.0]),
            st.sampled_from([0.0, 0.05]),
        ),
        "max_tokens": st.integers(1, 12),
        "k": st.integers(0, 12),
        "nonce": st.sampled_from([None, "n", "m"]),
        "ignore_eos": st.booleans(),
        "stop": st.sampled_from([(), ("\n",), ("a", "b")]),
        "denominator": st.sampled_from([None, 1024]),
    }
)
UNREAD = ("prompt", "return_token_ids", "return_tokens_as_token_ids")
"""Fields that say nothing of the sampling; those of the prompt are another check's."""


@quick
@given(settings_of_a_request, st.data())
def test_honest_records_pass_and_one_changed_leaf_fails(values: dict[str, Any], data: st.DataObject) -> None:
    with FakeServer() as server:
        serve(server, Tiny())
        made = one(server, Pins(**values))
    assert request_finding(made).outcome == "pass"
    assert isinstance(made.request.body, dict)
    name = data.draw(st.sampled_from(sorted(set(made.request.body) - {*UNREAD, "model"})))
    value = made.request.body[name]
    other = data.draw(st.sampled_from([o for o in ALTERNATIVES[name] if o != value]))
    assert request_finding(asked(made, **{name: other})).outcome == "fail"


ALTERNATIVES: dict[str, tuple[Any, ...]] = {
    "temperature": (0.7, 0.71, 1),
    "top_p": (0.5, 1.0, 0.8),
    "top_k": (3, 5, 7),
    "min_p": (0.2, 0.0),
    "repetition_penalty": (1.0, 1.2, 0.9),
    "frequency_penalty": (0.0, 0.1, -2),
    "presence_penalty": (0.0, 0.1, -2),
    "max_tokens": (40, 41),
    "min_tokens": (0, 1, 2),
    "n": (1, 2, 3),
    "seed": (1, 2),
    "stop": ("c", ["c"], ["b", "a"]),
    "stop_token_ids": ([], [1], [4, 5]),
    "ignore_eos": (True, False),
    "logprobs": (20, 30),
}
