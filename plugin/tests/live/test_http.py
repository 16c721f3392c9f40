"""The plugin in a real server: enforced replay, modes, grammar, refusals, and what must not change."""

from __future__ import annotations

import math
import os
import random
from typing import Any

import pytest
from plugin_engine import logproof
from plugin_wire import (
    CHAT,
    COMMON,
    ENFORCED,
    IDS,
    MESSAGES,
    ORDINARY,
    PLAIN,
    PROMPT,
    TEXT,
    VOCAB,
    ask,
    get,
    healthy,
    ids_of,
    logprobs_of,
    plugin_batch,
    post,
    record,
    send,
    together,
)  # fmt: skip

pytestmark = pytest.mark.live

PROCESSED, RAW = "processed_logprobs", "raw_logprobs"
PREFILL_NOISE = 1e-4  # float32 on the CPU; measured 2.1e-5 over 64 random ids
BATCH_NOISE = 1e-4  # float32, the same request in batches of other requests


def test_ordinary_replies_are_those_of_a_stock_engine(stock_record: Any, server: str) -> None:
    """Ids, texts, logprobs, errors and streams of eleven plain requests, each sent alone."""
    assert record(server) == stock_record["single"]


def test_in_a_mixed_batch_ordinary_requests_keep_their_results(stock_record: Any, server: str) -> None:
    """Over HTTP the batches' rows come and go, hence the bound; test_offline compares fixed batches bit by bit."""
    mixed = together(server, plugin_batch())
    for got, stock in zip(mixed[: len(ORDINARY)], stock_record["batch"][: len(ORDINARY)], strict=True):
        assert ids_of(got) == ids_of(stock)
        if stock["choices"][0]["logprobs"]:
            assert gap(logprobs_of(got), logprobs_of(stock)) <= BATCH_NOISE
    raw, processed, sampled, broken = mixed[len(ORDINARY) :]
    assert ids_of(raw)[: len(ENFORCED)] == ids_of(processed)[: len(ENFORCED)] == ENFORCED
    assert min(logprobs_of(processed)[: len(ENFORCED)]) <= -9999
    assert min(logprobs_of(raw)) > -100
    assert sampled["logproof"]["logprobs_mode"] == PROCESSED
    assert ids_of(broken)[:3] == [5, 6, 7]
    assert broken["logproof"]["grammar"] == {"off_at": 0}


def gap(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def test_the_status_route_says_what_is_on(server: str) -> None:
    status = get(server, "/logproof/status")
    assert status["ready"]
    assert status["off"] == {}
    assert status["runner"] == "v1"
    assert status["vocab_size"] == VOCAB
    assert status["canary"]["returned"][:4] == status["canary"]["enforced"]
    assert len(status["canary"]["returned"]) == 5


def test_the_clients_probe_shows_the_plugin(server: str) -> None:
    probed = logproof({**os.environ, "COLUMNS": "200"}, "probe", server)
    assert probed.returncode == 0, probed.stderr
    assert "logproof-vllm 0.1.0: enforced_replay, logprobs_mode" in probed.stdout


def test_ids_and_texts_of_one_batch_keep_to_their_own_request(server: str) -> None:
    """One asks for ids as tokens, one does not, one is enforced; the bytes are those of the text in all."""
    body: dict[str, Any] = {"messages": MESSAGES, "temperature": 0, "logprobs": True, "max_tokens": 8}
    flag = {"return_tokens_as_token_ids": True, "return_token_ids": True}
    text, ids, forced = together(
        server,
        [(CHAT, body), (CHAT, {**body, **flag}), (CHAT, {**body, "enforced_str": "Red, blue.", "max_tokens": 9})],
    )
    entries = [reply["choices"][0]["logprobs"]["content"] for reply in (text, ids, forced)]
    assert [entry["token"] for entry in entries[1]] == [f"token_id:{i}" for i in ids_of(ids)]
    assert not any(entry["token"].startswith("token_id:") for entry in (*entries[0], *entries[2]))
    assert [entry["bytes"] for entry in entries[0]] == [entry["bytes"] for entry in entries[1]]
    spelled = bytes(byte for entry in entries[2] for byte in entry["bytes"]).decode()
    assert spelled.startswith("Red, blue.")


@pytest.mark.parametrize("path", [TEXT, CHAT, IDS])
def test_sixty_four_random_ids_come_back_with_the_models_logprobs(server: str, path: str) -> None:
    """Ids exactly; the logprobs equal prefill scoring of the same ids within the engine's noise."""
    source = random.Random(path)
    ids = [source.randrange(VOCAB) for _ in range(64)]
    if path == IDS:
        reply = ask(server, path, token_ids=[504, 3575, 282], sampling_params={"logprobs": 1}, enforced_token_ids=ids)
    else:
        given = {"prompt": PROMPT, "logprobs": 1} if path == TEXT else {"messages": MESSAGES, "logprobs": True}
        reply = ask(server, path, enforced_token_ids=ids, return_token_ids=True, temperature=1.5, **given)
    assert ids_of(reply) == ids
    assert reply["choices"][0]["finish_reason"] == "length"
    prompt = [504, 3575, 282] if path == IDS else prompt_ids_of(reply)
    assert gap(logprobs_of(reply), prefill(server, prompt, ids)) <= PREFILL_NOISE


def prompt_ids_of(reply: Any) -> list[int]:
    """Chat names them beside its choices, completions in each."""
    return list(reply.get("prompt_token_ids") or reply["choices"][0]["prompt_token_ids"])


def prefill(server: str, prompt: list[int], ids: list[int]) -> list[float]:
    scored = ask(server, TEXT, prompt=[*prompt, *ids], max_tokens=1, prompt_logprobs=0)
    rows = scored["choices"][0]["prompt_logprobs"][len(prompt) :]
    return [row[str(i)]["logprob"] for row, i in zip(rows, ids, strict=True)]


@pytest.mark.parametrize("mode", [RAW, PROCESSED])
def test_a_capture_replays_exactly_whatever_the_sampling(server: str, mode: str) -> None:
    """Penalties, masks and the forced history act as in the capture; the seed does not matter."""
    sampling: dict[str, Any] = {
        "prompt": PROMPT, "temperature": 0.8, "top_k": 20, "top_p": 0.9, "min_p": 0.02, "presence_penalty": 1.5,
        "repetition_penalty": 1.2, "logprobs": 5, "return_token_ids": True, "return_tokens_as_token_ids": True,
        "logprobs_mode": mode,
    }  # fmt: skip
    capture = ask(server, TEXT, **sampling, seed=3, max_tokens=16)
    replay = ask(server, TEXT, **sampling, seed=99, enforced_token_ids=ids_of(capture))
    assert ids_of(replay) == ids_of(capture)
    assert replay["choices"][0]["logprobs"] == capture["choices"][0]["logprobs"]


def test_an_explicit_mode_does_not_change_what_is_sampled(server: str) -> None:
    sampling = {"prompt": PROMPT, "seed": 5, "top_p": 0.8, "logprobs": 1, **COMMON}
    plain, raw, processed = (ask(server, TEXT, **sampling, **more) for more in ({}, mode(RAW), mode(PROCESSED)))
    assert ids_of(plain) == ids_of(raw) == ids_of(processed)
    assert logprobs_of(plain) == logprobs_of(raw)
    assert logprobs_of(plain) != logprobs_of(processed)


def mode(name: str) -> dict[str, str]:
    return {"logprobs_mode": name}


def test_processed_rows_are_distributions_over_what_survived(server: str) -> None:
    reply = ask(server, TEXT, prompt=PROMPT, seed=1, top_k=4, logprobs=8, **COMMON, **mode(PROCESSED))
    for row in reply["choices"][0]["logprobs"]["top_logprobs"]:
        assert math.isclose(sum(math.exp(v) for v in row.values()), 1.0, abs_tol=1e-5)


def test_after_the_list_sampling_resumes_as_from_a_prompt(server: str) -> None:
    ids = [28, 30, 33]
    reply = ask(server, TEXT, prompt=PROMPT, enforced_token_ids=ids, temperature=0, **COMMON)
    prompt = reply["choices"][0]["prompt_token_ids"]
    rest = COMMON["max_tokens"] - len(ids)
    onwards = ask(server, TEXT, prompt=[*prompt, *ids], temperature=0, max_tokens=rest, return_token_ids=True)
    assert ids_of(reply) == [*ids, *ids_of(onwards)]


def test_eos_stop_ids_and_stop_strings_inside_the_list_end_nothing(server: str) -> None:
    ids = [2, 28, 30, 0, 2, 30, 19]
    reply = ask(
        server, TEXT, prompt=PROMPT, enforced_token_ids=ids, stop_token_ids=[30], stop=["."], return_token_ids=True
    )
    assert ids_of(reply) == ids
    assert reply["choices"][0]["finish_reason"] == "length"


def test_an_eos_at_the_end_ends_the_request(server: str) -> None:
    reply = ask(server, TEXT, prompt=PROMPT, enforced_token_ids=[28, 2], **COMMON)
    assert ids_of(reply) == [28, 2]
    assert reply["choices"][0]["finish_reason"] == "stop"


def test_validator_form_text_and_eos(server: str) -> None:
    entries = [{"token": "token_id:28", "top_tokens": ["28", "30"]}, {"token": "30"}, {"token": " the"}]
    reply = ask(server, CHAT, messages=MESSAGES, enforced_tokens={"tokens": entries}, return_token_ids=True)
    assert ids_of(reply)[:2] == [28, 30]
    assert ids_of(reply)[-1] == 2
    assert reply["logproof"]["eos_appended"]
    exact = ask(
        server, CHAT, messages=MESSAGES, enforced_str="Red, blue.", enforced_append_eos=False, return_token_ids=True
    )
    assert exact["choices"][0]["message"]["content"] == "Red, blue."
    assert exact["choices"][0]["finish_reason"] == "length"


def test_an_inferred_mode_is_reported_with_its_evidence(server: str) -> None:
    entries = [{"token": "28", "top_tokens": ["28", "0", "1", "2"]} for _ in range(4)]
    reply = ask(server, TEXT, prompt=PROMPT, enforced_tokens={"tokens": entries}, logprobs=1, top_k=1)
    assert reply["logproof"]["mode_source"] == "inferred"
    assert reply["logproof"]["logprobs_mode"] == PROCESSED
    assert reply["logproof"]["mode_evidence"]["padding_ids"] == 12


def test_a_stream_carries_the_ids_and_the_report(server: str) -> None:
    status, text = send(server, TEXT, {"model": "smollm2", "prompt": PROMPT, "enforced_token_ids": [28, 30, 33],
                                       "stream": True, "return_token_ids": True})  # fmt: skip
    assert status == 200
    assert text.rstrip().endswith(b"data: [DONE]")
    assert text.count(b'"logproof":{"enforced":3') == 1


def test_a_faithful_replay_keeps_its_grammar_exactly(server: str) -> None:
    path, body = PLAIN["grammar"]
    capture = ask(server, path, **{**body, "logprobs": 3})
    replay = ask(server, path, **{**body, "logprobs": 3, "enforced_token_ids": ids_of(capture)})
    assert replay["choices"][0]["logprobs"] == capture["choices"][0]["logprobs"]
    assert replay["logproof"]["grammar"] == "kept"


def test_a_bad_grammar_after_a_good_one_harms_nobody(server: str) -> None:
    for grammar in ({"regex": "("}, {"json": {"type": "nothing"}}):
        status, _ = post(server, TEXT, prompt=PROMPT, structured_outputs=grammar, enforced_token_ids=[5], max_tokens=3)
        assert status == 400
    healthy(server)
