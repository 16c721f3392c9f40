"""The ingestion hooks on stand-in request models and a stand-in input processor."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from logproof_vllm import canary, canonical, runtime
from logproof_vllm.fields import FieldPlan, ModeChoice, Vocabulary
from logproof_vllm.runtime import PASSED, STATUS, Binding
from logproof_vllm.server import bad_request, checks, ingestion, report

BINDING = Binding(Vocabulary(100, 2), 64, "v1", "raw_logprobs", False)


class ValidationError(Exception):
    """Stands for the server's validation error."""


class Params(SimpleNamespace):
    """Stands for vLLM's SamplingParams."""

    def __init__(self, **values: Any) -> None:
        base: dict[str, Any] = {
            "n": 1, "max_tokens": 10, "prompt_logprobs": None, "structured_outputs": None, "extra_args": None,
        }  # fmt: skip
        super().__init__(**(base | values))

    def clone(self) -> Params:
        return copy.deepcopy(self)


class Request:
    """Stands for a chat or completions request; extra fields live in ``model_extra``."""

    params = Params()

    def __init__(
        self,
        *,
        prompt: object = "x",
        xargs: object = None,
        embeds: object = None,
        max_tokens: int = 16,
        **extra: object,
    ) -> None:
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.vllm_xargs = xargs
        self.prompt_embeds = embeds
        self.model_extra = extra

    def to_sampling_params(self, max_tokens: int) -> Params:
        made = self.params.clone()
        made.max_tokens = max_tokens
        return made

    def to_beam_search_params(self) -> str:
        return "beam"


@pytest.fixture(autouse=True)
def status(monkeypatch: pytest.MonkeyPatch) -> runtime.Status:
    monkeypatch.setattr(bad_request, "validation_error", lambda refused: ValidationError(str(refused)))
    for name, value in vars(runtime.Status(canary=PASSED, binding=BINDING)).items():
        monkeypatch.setattr(STATUS, name, value)
    return STATUS


def convert(request: Request, max_tokens: int = 10) -> Any:
    return ingestion.wrap_to_sampling_params(type(request).to_sampling_params)(request, max_tokens)


def test_a_plain_request_keeps_its_parameters(status: runtime.Status) -> None:
    status.canary = "broken"
    assert convert(Request(other=1)) == Params()


def test_ids_become_the_canonical_entry() -> None:
    plan = canonical.read(convert(Request(enforced_token_ids=[3, 4], logprobs_mode="processed_logprobs")))
    assert plan is not None
    assert (plan.ids, plan.mode, len(plan.tag)) == ((3, 4), "processed_logprobs", 16)


def test_a_length_below_the_list_is_refused() -> None:
    """Asked for, or what the prompt leaves of the model's length: the server hands both over as one number."""
    assert convert(Request(enforced_token_ids=[3, 4]), 2).max_tokens == 2
    with pytest.raises(ValidationError, match="1 would cut the 2 .* model's length of 64"):
        convert(Request(enforced_token_ids=[3, 4]), 1)


def test_what_the_middleware_read_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "read_fields", None)
    token = report.CURRENT.set(report.Report(body_plan=FieldPlan((7,), ModeChoice(None, "deployment"))))
    try:
        plan = canonical.read(convert(Request(enforced_token_ids=[7])))
    finally:
        report.CURRENT.reset(token)
    assert plan is not None
    assert plan.ids == (7,)


def test_no_list_is_longer_than_the_models_length() -> None:
    with pytest.raises(ValidationError, match="ceiling is 64"):
        convert(Request(enforced_token_ids=[3] * 65))


def test_the_report_is_filled() -> None:
    current = report.Report()
    token = report.CURRENT.set(current)
    try:
        convert(Request(logprobs_mode="raw_logprobs"))
    finally:
        report.CURRENT.reset(token)
    assert (current.mode, current.grammar) == ("raw_logprobs", False)


@pytest.mark.parametrize(
    "extra",
    [{"enforced_token_ids": [100]}, {"enforced_token_ids": []}, {"logprobs_mode": "banana"},
     {"enforced_token_ids": [1], "prompt": ["a", "b"]}, {"enforced_token_ids": [1], "prompt": [[1], [2]]},
     {"enforced_token_ids": [1], "embeds": "e"}, {"enforced_token_ids": [1], "max_tokens": 0},
     {"xargs": {"enforced_token_ids": [1]}}, {"xargs": {"logproof": 1}}],
    ids=str,
)  # fmt: skip
def test_bad_bodies_are_the_servers_own_error(extra: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        convert(Request(**extra))


@pytest.mark.parametrize(
    "params", [{"n": 2}, {"prompt_logprobs": 0}, {"prompt_logprob_token_ids": [[1]]}, {"trace_decode_token_ids": [1]}],
    ids=str,
)  # fmt: skip
def test_combinations_that_would_not_be_enforced_are_refused(params: dict[str, Any]) -> None:
    class Odd(Request):
        pass

    Odd.params = Params(**params)
    with pytest.raises(ValidationError):
        convert(Odd(enforced_token_ids=[1]))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"speculative": True}, "speculative"), ({"watermark": True}, "watermarking"), ({"modified": True}, "diffusion"),
     ({"default_mode": "raw_logits"}, "deployment reports raw_logits")],
)  # fmt: skip
def test_engines_that_cannot_are_refused(status: runtime.Status, change: dict[str, Any], words: str) -> None:
    status.binding = Binding(**(vars(BINDING) | change))
    with pytest.raises(ValidationError, match=words):
        convert(Request(enforced_token_ids=[1], logprobs_mode="processed_logprobs"))


def test_the_deployments_own_mode_needs_nothing(status: runtime.Status) -> None:
    status.binding = Binding(**(vars(BINDING) | {"speculative": True}))
    assert convert(Request(logprobs_mode="raw_logprobs")).extra_args is not None


def test_v2_refuses_structured_outputs_and_names_the_fix(status: runtime.Status) -> None:
    class Structured(Request):
        params = Params(structured_outputs=object())

    convert(Structured(enforced_token_ids=[1]))
    status.binding = Binding(**(vars(BINDING) | {"runner": "v2"}))
    with pytest.raises(ValidationError, match="VLLM_USE_V2_MODEL_RUNNER=0"):
        convert(Structured(enforced_token_ids=[1]))


@pytest.mark.parametrize("canary", ["not run", "asked for 1, got 2"])
def test_nothing_is_served_before_the_canary_passed(status: runtime.Status, canary: str) -> None:
    status.canary = canary
    for extra in ({"enforced_token_ids": [1]}, {"logprobs_mode": "raw_logprobs"}, {"enforced_str": "x"}):
        with pytest.raises(ValidationError, match="logproof"):
            convert(Request(**extra))


def test_a_broken_contract_refuses_with_its_reason(status: runtime.Status) -> None:
    status.problems = ["Sampler.forward takes (x)"]
    with pytest.raises(ValidationError, match=r"Sampler.forward takes \(x\)"):
        convert(Request(enforced_token_ids=[1]))


def test_beam_search_is_refused_only_with_the_fields() -> None:
    wrapped = ingestion.wrap_beam_search(Request.to_beam_search_params)
    assert wrapped(Request()) == "beam"
    with pytest.raises(ValidationError, match="beam search"):
        wrapped(Request(enforced_token_ids=[1]))


class Processor:
    """Stands for vLLM's InputProcessor."""

    def __init__(self) -> None:
        model = SimpleNamespace(get_vocab_size=lambda: 100, max_model_len=12, logprobs_mode="raw_logprobs")
        self.vllm_config = SimpleNamespace(
            model_config=model, speculative_config=None, use_v2_model_runner=False, watermark_config=None
        )
        self.tokenizer = None

    def process_inputs(self, request_id: str, prompt: list[int], params: Any, *more: Any) -> Any:
        return SimpleNamespace(prompt_token_ids=prompt, sampling_params=params)


def process(params: Params, prompt: tuple[int, ...] = (1, 2)) -> Any:
    return ingestion.wrap_process_inputs(Processor.process_inputs)(Processor(), "r", list(prompt), params, ())


def test_a_plain_request_reaches_the_engine_as_it_is() -> None:
    params = Params(extra_args={"other": 1})
    assert process(params).sampling_params is params


def test_a_pooling_request_reaches_the_engine_as_it_is() -> None:
    """Its parameters have no ``extra_args``; no route of a pooling model takes the fields either."""
    pooling: Any = SimpleNamespace(task="embed")
    assert process(pooling).sampling_params is pooling


def test_fields_in_extra_args_become_the_canonical_entry_on_a_copy() -> None:
    params = Params(extra_args={"enforced_token_ids": [3], "other": 1})
    made = process(params).sampling_params
    assert made.extra_args["logproof"]["ids"] == [3]
    assert made.extra_args["other"] == 1
    assert params.extra_args == {"enforced_token_ids": [3], "other": 1}


@pytest.mark.parametrize(
    "extra",
    [{"enforced_token_ids": [100]}, {"enforced_token_ids": [True]}, {"logprobs_mode": "x"}, {"logproof": 1},
     {"logproof": {}}, {"logproof": {"ids": [100], "mode": None, "tag": "a"}},
     {"logproof": {"ids": [-1], "mode": None, "tag": "a"}}, {"logproof": {"ids": [1], "mode": "x", "tag": "a"}},
     {"logproof": {"ids": [1], "mode": None, "tag": 5}}, {"logproof": {"ids": [1], "mode": None, "tag": "a", "b": 1}},
     {"logproof": {"ids": [1], "mode": None, "tag": "a"}, "enforced_token_ids": [1]}],
    ids=str,
)  # fmt: skip
def test_whatever_comes_in_extra_args_is_checked_again(extra: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        process(Params(extra_args=extra))


def test_the_list_must_fit_the_model_and_max_tokens() -> None:
    entry = {"logproof": {"ids": [1] * 10, "mode": None, "tag": "a"}}
    assert process(Params(extra_args=entry)) is not None
    with pytest.raises(ValidationError, match="exceed the model's length of 12"):
        process(Params(extra_args=entry), (1, 2, 3))
    with pytest.raises(ValidationError, match="would cut"):
        process(Params(extra_args=entry, max_tokens=9))


def test_only_the_canary_passes_before_the_canary_passed(status: runtime.Status) -> None:
    status.canary = runtime.NOT_RUN
    for tag, passes in ((canary.TAG, True), ("a", False)):
        params = Params(extra_args={"logproof": {"ids": [1], "mode": None, "tag": tag}})
        if passes:
            assert process(params) is not None
        else:
            with pytest.raises(ValidationError, match="has not proved itself"):
                process(params)
