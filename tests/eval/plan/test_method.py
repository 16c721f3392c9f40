from __future__ import annotations

from typing import ClassVar

import pytest
from msgspec.structs import replace

from logproof.dialects.registry import get_dialect
from logproof.errors import DatasetError, PlanRefused
from logproof.eval.plan.method import TaskMethod, TaskPlan, choose_method, methods_of, requests
from logproof.eval.tasks.task import ClpItem, GenItem, PplItem, Settings
from logproof.ir.facts import Facts

LABELS = Facts(engine="vllm", fields={"/v1/completions": ("logprob_token_ids",)})
NATIVE, ECHO = get_dialect("vllm_native"), get_dialect("openai_completions")
SETTINGS = Settings()


def test_options_are_scored_by_prompt_one_request_each() -> None:
    item = PplItem("Q:", ("a", "b"), (" a", " b"), 0, neutral="N:")
    plan = TaskPlan("m", choose_method("ppl", SETTINGS, ECHO, Facts(), tokenizer=True), SETTINGS)
    asked = requests(item, plan)
    assert [part for part, _ in asked] == ["option 0", "option 1"]
    assert [r.input.text for _, r in asked] == ["Q: a", "Q: b"]
    assert all(r.scoring.prompt == 0 and r.sampling.max_tokens == 1 for _, r in asked)


def test_neutral_contexts_are_asked_only_when_wanted() -> None:
    item = PplItem("Q:", ("a", "b"), (" a", " b"), 0, neutral="N:")
    plan = TaskPlan("m", TaskMethod("prompt_scores", {}), Settings(uncond=True))
    assert [(p, r.input.text) for p, r in requests(item, plan)][2:] == [("neutral 0", "N: a"), ("neutral 1", "N: b")]
    bare = PplItem("Q:", ("a", "b"), (" a", " b"), 0)
    assert len(requests(bare, plan)) == 2


def test_labels_are_scored_exactly_where_the_endpoint_can() -> None:
    method = choose_method("clp", SETTINGS, NATIVE, LABELS, tokenizer=True)
    assert method.name == "label_scores"
    [(part, request)] = requests(ClpItem("Q:", (" A", " B"), 0), TaskPlan("m", method, SETTINGS, {" A": 5, " B": 6}))
    assert (part, request.scoring.label_ids) == ("labels", (5, 6))


@pytest.mark.parametrize(("facts", "tokenizer"), [(Facts(), True), (LABELS, False)])
def test_labels_fall_back_to_a_stated_top_k(facts: Facts, tokenizer: bool) -> None:
    method = choose_method("clp", Settings(top_k=7), NATIVE, facts, tokenizer=tokenizer)
    assert method == TaskMethod("top_k", {"top_logprobs": 7})
    [(_, request)] = requests(ClpItem("Q:", (" A", " B"), 0), TaskPlan("m", method, Settings(top_k=7)))
    assert request.scoring.sampled == 7
    assert (request.sampling.temperature, request.sampling.top_p) == (1.0, None)


def test_text_is_greedy_with_its_stops_and_nothing_else() -> None:
    method = choose_method("gen", SETTINGS, NATIVE, Facts(), tokenizer=False)
    [(_, request)] = requests(GenItem("Q:", ("X",), 9, "1"), TaskPlan("m", method, SETTINGS))
    assert method == TaskMethod("scored_text", {"sampled_logprobs": 1})
    assert (request.sampling.stop, request.sampling.max_tokens, request.sampling.temperature) == (("X",), 9, 0.0)
    assert request.sampling.seed is None
    assert request.scoring.sampled == 0


def test_no_stop_is_an_empty_list_and_the_text_is_whole() -> None:
    [(_, request)] = requests(GenItem("Q:", (), 9, "1"), TaskPlan("m", TaskMethod("text", {}), SETTINGS))
    assert request.sampling.stop == ()
    assert request.scoring.sampled is None


def test_repeats_differ_by_seed() -> None:
    settings = Settings(temperature=0.8, repeats=3, seed=10, max_tokens=4)
    plan = TaskPlan("m", TaskMethod("text", {}), settings)
    sampling = [requests(GenItem("Q:", (), 9, "1"), plan, r)[0][1].sampling for r in range(3)]
    assert [s.seed for s in sampling] == [10, 11, 12]
    assert {(s.temperature, s.max_tokens) for s in sampling} == {(0.8, 4)}


def test_a_chat_wire_gets_one_user_message() -> None:
    [(_, request)] = requests(GenItem("Q:", (), 9, "1"), TaskPlan("m", TaskMethod("text", {}, "chat"), SETTINGS))
    assert request.input.messages is not None
    assert request.input.messages[0].text == "Q:"


def test_a_wire_that_cannot_score_is_refused_before_the_run_and_others_are_named() -> None:
    class Mute(type(NATIVE)):
        id = "mute"
        channels: ClassVar[dict[str, str]] = {}

    with pytest.raises(PlanRefused, match="mute cannot give input_scoring") as caught:
        choose_method("ppl", SETTINGS, Mute(), Facts(), tokenizer=True, others=lambda: [NATIVE])
    assert "vllm_native" in str(caught.value.hint)


def test_a_refusal_of_the_request_itself_is_told() -> None:
    class NoSeed(type(NATIVE)):
        id = "no_seed"

        def lower(self, request, facts, ledger):
            super().lower(request, facts, ledger)
            ledger.refuse("sampling.max_tokens", "no limit on this wire") if request.sampling.max_tokens == 1 else None

    with pytest.raises(PlanRefused, match="no_seed cannot ask a ppl task: .*no limit on this wire"):
        choose_method("ppl", SETTINGS, NoSeed(), Facts(), tokenizer=True)


def test_the_ways_of_each_kind() -> None:
    assert [(w.name, w.form) for w in methods_of("clp", SETTINGS, True)] == [
        ("label_scores", "text"), ("top_k", "text"), ("label_scores", "chat"), ("top_k", "chat")
    ]  # fmt: skip
    assert [(w.name, w.form) for w in methods_of("clp", SETTINGS, False)] == [("top_k", "text"), ("top_k", "chat")]
    assert all(w.needs["prefill"] for w in methods_of("clp", SETTINGS, True) if w.form == "chat")
    assert [(w.name, w.form) for w in methods_of("gen", SETTINGS, True)] == [
        ("scored_text", "text"), ("text", "text"), ("scored_text", "chat"), ("text", "chat")
    ]  # fmt: skip


CHAT_FIELDS = ("logprob_token_ids", "return_token_ids", "return_tokens_as_token_ids")


def test_labels_over_chat_stand_behind_an_answer_that_the_assistant_has_begun() -> None:
    facts = Facts(engine="vllm", max_logprobs=100, fields={"/v1/chat/completions": CHAT_FIELDS})
    method = choose_method("clp", SETTINGS, get_dialect("openai_chat"), facts, tokenizer=True)
    assert (method.name, method.form) == ("label_scores", "chat")
    [(_, request)] = requests(
        ClpItem("Q\nA. x\nAnswer:", (" A", " B"), 0), TaskPlan("m", method, SETTINGS, {" A": 5, " B": 6})
    )
    assert request.input.messages is not None
    assert [(m.role, m.text) for m in request.input.messages] == [("user", "Q\nA. x"), ("assistant", "Answer:")]
    assert request.scoring.label_ids == (5, 6)


def test_labels_are_not_asked_of_a_chat_wire_that_continues_no_answer() -> None:
    with pytest.raises(PlanRefused):
        choose_method("clp", SETTINGS, get_dialect("openai_chat"), Facts(engine="openai"), tokenizer=False)


@pytest.mark.parametrize("prompt", ["What is it?", "Answer:", ""])
def test_a_label_prompt_over_chat_ends_in_its_context(prompt: str) -> None:
    with pytest.raises(DatasetError, match="ends in 'Answer:'"):
        requests(ClpItem(prompt, (" A", " B"), 0), TaskPlan("m", TaskMethod("top_k", {}, "chat"), SETTINGS))


def test_draws_go_without_seeds_where_the_wire_takes_none() -> None:
    """SGLang heeds a seed only in its deterministic mode."""
    dialect, drawn = get_dialect("sglang_native"), Settings(temperature=0.7, repeats=2)
    plain = Facts(engine="sglang", vocab_size=1000)
    method = choose_method("gen", drawn, dialect, plain, tokenizer=True)
    assert (method.name, method.form, method.seeded) == ("scored_text", "text", False)
    item = GenItem("Q:", (), 9, "1")
    assert [requests(item, TaskPlan("m", method, drawn), r)[0][1].sampling.seed for r in range(2)] == [None, None]
    steady = choose_method("gen", drawn, dialect, replace(plain, deterministic=True), tokenizer=True)
    assert (steady.name, steady.seeded) == ("scored_text", True)
    assert choose_method("gen", SETTINGS, dialect, plain, tokenizer=True).seeded
