from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dialects.sglang_native.sglang_cases import IDS, OWN, Leaves, body, lift, own_body, plain, request
from logproof.errors import BadReply, ContextOverflow, MissingChannel, OutputContractError, ServerFault
from logproof.ir.request import Input, Request, Sampling, Scoring


@pytest.mark.parametrize("name", sorted(OWN))
def test_every_own_recording_lifts_whole(name: str) -> None:
    asked = OWN[name]
    response = lift(asked, own_body(name))
    assert len(response.choices) == asked.choices
    assert response.prompt_ids is not None
    for choice in response.choices:
        assert (choice.tokens is None) == (asked.scoring.sampled is None)
        assert (choice.labels is None) == (asked.scoring.label_ids is None)
        if choice.tokens is not None and choice.finish.reason == "length":
            assert "".join(t or "" for t in choice.tokens.texts or ()) == choice.text


def test_the_scored_prompt() -> None:
    prompt = lift(OWN["score"], own_body("score")).prompt
    assert prompt is not None
    assert prompt.ids is not None
    assert prompt.top is not None
    assert prompt.ids.tolist() == list(IDS)
    assert np.isnan(prompt.logprobs[0])
    assert prompt.logprobs[1:] == pytest.approx(
        [-11.771719932556152, -0.3233709931373596, -2.427212953567505, -0.4347500801086426]
    )
    assert np.diff(prompt.top.offsets).tolist() == [0, 4, 3, 3, 3]
    assert prompt.top.by_id(1)[3575] == prompt.logprobs[1]
    assert prompt.meaning == "raw"


def test_texts_join_to_the_prompt_where_characters_span_tokens() -> None:
    prompt = lift(OWN["score_cjk"], own_body("score_cjk")).prompt
    assert prompt is not None
    assert prompt.texts is not None
    assert "".join(t or "" for t in prompt.texts) == OWN["score_cjk"].input.text


def test_one_width_serves_both_channels_and_each_is_cut_to_its_own() -> None:
    response = lift(OWN["score_ids"], own_body("score_ids"))
    tokens, labels = response.choices[0].tokens, response.choices[0].labels
    assert response.prompt is not None
    assert response.prompt.top is not None
    assert tokens is not None
    assert tokens.top is not None
    assert labels is not None
    assert np.diff(response.prompt.top.offsets).tolist() == [0, 3, 2, 2, 2]
    assert np.diff(tokens.top.offsets).tolist() == [5, 5, 5, 5]
    assert labels.ids.tolist() == [260, 7042, 198]
    assert labels.logprobs.shape == (4, 3)
    assert labels.logprobs[0, 1] == tokens.logprobs[0]


def test_several_choices_come_as_a_list() -> None:
    response = lift(OWN["labels_n2"], own_body("labels_n2"))
    assert [c.index for c in response.choices] == [0, 1]
    assert (response.usage.prompt, response.usage.completion) == (5, 4)


def test_finish_reasons() -> None:
    eos = lift(OWN["eos"], own_body("eos")).choices[0]
    assert (eos.finish.reason, eos.finish.raw, eos.finish.matched) == ("stop", "stop", 2)
    assert eos.tokens is not None
    assert eos.tokens.texts is not None
    assert eos.tokens.texts[-1] == "<|im_end|>"
    stopped = lift(OWN["plain"], own_body("plain")).choices[0]
    assert (stopped.text, stopped.finish.matched) == (" Paris", ".")
    assert stopped.token_ids is not None
    assert stopped.token_ids.tolist() == [7042, 30]
    assert lift(OWN["score"], own_body("score")).choices[0].finish.reason == "length"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", {"name": "John"}),
        ("json_object", {"name": "John", "age": 30}),
        ("choice", "yes (1+1)"),
        ("regex", "2023"),
        ("ebnf", "no"),
    ],
)
def test_structured_output_is_parsed(name: str, value: object) -> None:
    choice = lift(OWN[name], own_body(name)).choices[0]
    assert choice.parsed == value
    assert choice.tokens is None or choice.tokens.meaning == "constrained"


def test_structured_output_off_its_schema_is_an_error() -> None:
    cut = own_body("schema").replace(b'{\\"name\\": \\"John\\"}', b'{\\"name\\": \\"Jo')
    with pytest.raises(OutputContractError):
        lift(OWN["schema"], cut)


@pytest.mark.parametrize(
    ("leaves", "meaning"),
    [
        ({"temperature": 0.0}, "raw"),
        ({"temperature": 1.0, "top_p": 0.5}, "raw"),
        ({}, "raw"),
        ({"temperature": 0.7}, "processed"),
        ({"temperature": 0.0, "frequency_penalty": 0.1}, "processed"),
        ({"temperature": 0.0, "presence_penalty": 0.1}, "processed"),
        ({"temperature": 0.0, "logit_bias": {5: 1.0}}, "processed"),
    ],
)
def test_the_meaning_of_sampled_logprobs_follows_the_sampling(leaves: Leaves, meaning: str) -> None:
    asked = msgspec.structs.replace(request(**leaves), scoring=Scoring(sampled=0))
    tokens = lift(asked, body("20_stop_string")).choices[0].tokens
    assert tokens is not None
    assert tokens.meaning == meaning


def test_a_penalty_option_makes_logprobs_processed() -> None:
    asked = msgspec.structs.replace(request(sampled=0), options={"repetition_penalty": 1.5})
    tokens = lift(asked, body("20_stop_string")).choices[0].tokens
    assert tokens is not None
    assert tokens.meaning == "processed"


def test_an_underflowed_probability_is_minus_infinity() -> None:
    response = lift(request(sampled=3, temperature=0.5), body("17a_temp_0.5"))
    tokens = response.choices[0].tokens
    assert tokens is not None
    assert tokens.top is not None
    assert tokens.top.logprobs.tolist() == [0.0, -np.inf, -np.inf]


# Replies that must not become a number.


@pytest.mark.parametrize(
    ("name", "asked", "error", "word"),
    [
        ("a10_old_radix_truncated", request(prompt=0), BadReply, "1 entries for 5 prompt tokens"),
        ("a3_client_abort_200", request(), ServerFault, "aborted"),
        ("a5_skip_tokenizer_init_no_text", request(), MissingChannel, "without a tokenizer"),
        ("a8_flat_b64", request(prompt=1), BadReply, "1 entries for 2 completion tokens"),
        ("a9_weight_swap_mid_request", request(sampled=0), BadReply, "weights changed"),
        ("a9_weight_swap_mid_request", request(prompt=0), BadReply, "weights changed"),
        ("01", request(sampled=0), MissingChannel, "sampled logprobs"),
        ("01", request(prompt=0), MissingChannel, "prompt logprobs"),
        ("01", request(label_ids=(5,)), MissingChannel, "sampled logprobs"),
        ("20_stop_string", request(label_ids=(5,)), MissingChannel, "label scores"),
        ("20_stop_string", request(sampled=2), MissingChannel, "top logprobs"),
        ("10_token_ids_logprob_out", request(label_ids=(260, 7042, 198)), BadReply, "were asked"),
        ("05_start_len_2", request(prompt=1), BadReply, "3 entries for 5 prompt tokens"),
        ("03_score_full_repeat_after_cache", request(prompt=0), BadReply, "confirms"),
        ("84_score_after_cache", request(prompt=0), BadReply, "confirms"),
        ("82_abort_unknown", request(), BadReply, "Expected"),
        ("51_batch_text", request(), BadReply, "disagree|choices"),
        ("08_error", request(), ContextOverflow, "longer"),
        ("empty", request(), BadReply, "no choice"),
    ],
)
def test_refused_replies(name: str, asked: Request, error: type[Exception], word: str) -> None:
    made: dict[str, object] = {
        "01": {"text": "a", "output_ids": [7], "meta_info": {**META, "prompt_tokens": 5}},
        "08_error": {
            "error": {"message": "The input (9 tokens) is longer than the model's context length (8 tokens)."}
        },
        "empty": [],
    }
    raw = msgspec.json.encode(made[name]) if name in made else body(name)
    with pytest.raises(error, match=word):
        lift(asked, raw)


META: dict[str, object] = {"finish_reason": {"type": "length", "length": 1}, "prompt_tokens": 2, "completion_tokens": 1}


def scored_body(**changed: object) -> bytes:
    """A reply of two prompt tokens and one sampled token, with some of its meta fields replaced."""
    meta: dict[str, object] = {
        **META,
        "input_token_logprobs": [[None, 5, "a"], [-1.0, 6, "b"]],
        "input_top_logprobs": [None, [[-0.5, 9, "c"]]],
        "output_token_logprobs": [[-2.0, 7, "c"]],
        "output_top_logprobs": [[[-0.5, 9, "d"]]],
        **changed,
    }
    top: dict[str, object] = {k: changed[k] for k in ("prompt_token_ids", "output_ids", "index") if k in changed}
    reply: dict[str, object] = {"text": "c", "output_ids": [7], "meta_info": meta, "prompt_token_ids": [5, 6], **top}
    return msgspec.json.encode(reply)


AB = request(Input(text="ab"), prompt=1, sampled=1)


def test_the_small_reply_is_fine() -> None:
    response = lift(AB, scored_body())
    tokens = response.choices[0].tokens
    assert tokens is not None
    assert tokens.top is not None
    assert tokens.top.by_id(0) == {9: -0.5, 7: -2.0}


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"cached_tokens": 1}, "cache"),
        ({"num_retractions": 1}, "retracted"),
        ({"total_retractions": 2}, "2 times"),
        ({"finish_reason": None}, "did not finish"),
        ({"completion_tokens": 2}, "1 entries for 2"),
        ({"prompt_tokens": 3}, "2 entries for 3"),
        ({"output_token_logprobs_length": 2}, "counted"),
        ({"input_token_logprobs": [[-1.0, 5, "a"], [-1.0, 6, "b"]]}, "nothing before it"),
        ({"input_token_logprobs": [[None, 5, "a"], [None, 6, "b"]]}, "null"),
        ({"input_token_logprobs": [[None, 5, "a"], [-9999.0, 6, "b"]]}, "no logprob"),
        ({"input_token_logprobs": [[None, 5, "a"], [1.0, 6, "b"]]}, "no logprob"),
        ({"input_token_logprobs": [[None, 5, "a"], [-1.0, 8, "b"]]}, "not the prompt's"),
        ({"prompt_token_ids": [5, 8]}, "not the prompt's"),
        ({"input_top_logprobs": [None, [[-0.5, 9, "c"], [-0.6, 10, "d"]]]}, "2 entries for a top 1"),
        ({"input_top_logprobs": [None, []]}, "0 entries"),
        ({"input_top_logprobs": [None, None]}, "0 entries"),
        ({"input_top_logprobs": [[[-0.5, 9, "c"]], [[-0.5, 9, "c"]]]}, "unscored"),
        ({"input_top_logprobs": [None]}, "1 entries for 2"),
        ({"input_top_logprobs": [None, [[-1.5, 9, "c"]]]}, "not the last"),
        ({"input_top_logprobs": [None, [[-0.9, 6, "b"]]]}, "two values"),
        ({"input_top_logprobs": [None, [[None, 9, "c"]]]}, "null"),
        ({"output_token_logprobs": [[-2.0, 8, "c"]]}, "different tokens"),
        ({"output_token_logprobs": []}, "0 entries"),
        ({"output_top_logprobs": [[[-0.5, -9, "d"]]]}, "no token id"),
        ({"output_top_logprobs": [[[-9999.0, 9, "d"]]]}, "no logprob of"),
        ({"output_token_logprobs": [[-9999.5, 7, "c"]], "output_top_logprobs": [[[-9999.0, 9, "d"]]]}, "no logprob of"),
        ({"output_token_logprobs": [[-0.1, 7, "c"]], "output_top_logprobs": [[[-0.1, 9, "d"]]]}, "more than 1"),
        ({"output_ids": [7, 7]}, "2 entries for 1"),
        ({"index": 1}, "in place 0"),
    ],
)
def test_a_reply_with_one_fault_is_refused(changed: dict[str, object], word: str) -> None:
    with pytest.raises(BadReply, match=word):
        lift(AB, scored_body(**changed))


def test_two_choices_must_score_one_prompt() -> None:
    one, other = (json.loads(scored_body()) for _ in range(2))
    other["prompt_token_ids"] = [5, 8]
    other["meta_info"]["input_token_logprobs"][1][1] = 8
    with pytest.raises(BadReply, match="different prompts"):
        lift(msgspec.structs.replace(AB, sampling=Sampling(n=2)), msgspec.json.encode([one, other]))


def test_an_id_twice_in_a_top_list() -> None:
    asked = request(Input(text="ab"), sampled=2)
    with pytest.raises(BadReply, match="twice"):
        lift(asked, scored_body(output_top_logprobs=[[[-0.9, 9, "d"], [-0.9, 9, "d"]]]))


def test_label_scores_must_agree_with_the_sampled_token() -> None:
    asked = request(Input(text="ab"), label_ids=(7, 9))
    good = scored_body(output_token_ids_logprobs=[[[-2.0, 7, None], [-0.5, 9, None]]])
    labels = lift(asked, good).choices[0].labels
    assert labels is not None
    assert labels.logprobs.tolist() == [[-2.0, -0.5]]
    for rows, word in (
        ([[[-2.1, 7, None], [-0.5, 9, None]]], "two logprobs"),
        ([[[-2.0, 7, None]]], "were asked"),
        ([None], "were asked"),
        ([], "0 entries"),
        ([[[-2.0, 7, None], [None, 9, None]]], "null"),
    ):
        with pytest.raises(BadReply, match=word):
            lift(asked, scored_body(output_token_ids_logprobs=rows))


def test_a_clipped_completion_is_noted() -> None:
    assert lift(request(Input(text="ab"), max_tokens=9), scored_body()).notes == (
        "the server cut at 1 tokens, 9 were asked",
    )
    assert lift(request(Input(text="ab"), max_tokens=1), scored_body()).notes == ()


def test_tempered_logprobs_and_mixed_runs_are_noted() -> None:
    assert "ORIGINAL" in lift(request(sampled=0, temperature=0.5), body("20_stop_string")).notes[0]
    assert "weights changed" in lift(request(max_tokens=2), body("a9_weight_swap_mid_request")).notes[0]


def test_a_server_without_tokenizer_gives_ids_and_says_so() -> None:
    response = lift(request(sampled=0, max_tokens=2), body("a5_skip_tokenizer_init_no_text"))
    tokens = response.choices[0].tokens
    assert tokens is not None
    assert (tokens.texts, response.notes) == (None, ("the server runs without a tokenizer: texts are unknown",))


def test_usage() -> None:
    usage = lift(request(max_tokens=2), body("a7_multimodal_usage")).usage
    assert (usage.prompt, usage.completion, usage.total) == (5, 2, None)
    assert usage.details == {"image_tokens": 256, "audio_tokens": 12}
    assert lift(request(max_tokens=2), body("a6_spec_decoding_meta")).usage.cached == 0


def test_provenance() -> None:
    response = lift(OWN["plain"], own_body("plain"))
    assert (response.model, response.fingerprint) == (None, "default")
    assert response.response_id


def test_ids_that_were_not_sent_are_refused() -> None:
    with pytest.raises(BadReply, match="another prompt"):
        lift(request(Input(token_ids=(504, 3575, 282, 4649, 315)), prompt=2, sampled=5), own_body("score_ids"))


def test_recordings_hold_no_machine_paths() -> None:
    for path in sorted(Path(__file__).parents[2].joinpath("replies/sglang_native").glob("*.json")):
        assert not {"/root/", "/work/", "/tmp/"} & {p for p in ("/root/", "/work/", "/tmp/") if p in path.read_text()}


def test_two_lifts_are_equal() -> None:
    assert plain(lift(OWN["score_ids"], own_body("score_ids"))) == plain(lift(OWN["score_ids"], own_body("score_ids")))
