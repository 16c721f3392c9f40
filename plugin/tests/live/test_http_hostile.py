"""Bodies and clients that mean harm, or ask for what cannot be enforced: a 400 with the reason, and nobody is hurt."""

from __future__ import annotations

import json
import math
import socket
import time
import urllib.error
import urllib.request
from typing import Any

import pytest
from plugin_wire import CHAT, IDS, MESSAGES, PROMPT, TEXT, VOCAB, ask, healthy, ids_of, logprobs_of, post, send

pytestmark = pytest.mark.live

RAW = "raw_logprobs"
HOSTILE = [-1, VOCAB, 2**31, 2**63, 10**40, True, 1.0, "5", None, [1]]
BAD: list[tuple[str, dict[str, Any]]] = [
    *((path, {"enforced_token_ids": [5, value]}) for value in HOSTILE for path in (TEXT, CHAT, IDS)),
    *((TEXT, {"enforced_tokens": {"tokens": [{"token": text}]}}) for text in ("1_0", "+5", "٣", " 7", "", "49152", 5)),
    *((TEXT, body) for body in (
        {"enforced_token_ids": []}, {"enforced_token_ids": [5] * 200_000}, {"enforced_str": ""},
        {"enforced_token_ids": [5], "n": 2}, {"enforced_token_ids": [5], "enforced_str": "x"},
        {"logprobs_mode": "banana"}, {"logprobs_mode": "raw_logits"}, {"enforced_token_ids": [VOCAB], "stream": True},
        {"enforced_token_ids": [5], "use_beam_search": True, "n": 2}, {"enforced_token_ids": [5], "prompt_logprobs": 1},
        {"enforced_token_ids": [5], "echo": True, "logprobs": 1}, {"enforced_token_ids": [5, 6], "max_tokens": 1},
        {"enforced_token_ids": [5], "prompt": ["a", "b"]}, {"enforced_token_ids": [5] * 2048},
        {"enforced_token_ids": [5], "echo": True, "max_tokens": 0},
        {"vllm_xargs": {"enforced_token_ids": [1]}}, {"vllm_xargs": {"logproof": [1]}}, {"enforced_append_eos": True},
    )),
    (IDS, {"enforced_token_ids": [VOCAB], "stream": True}),
    (IDS, {"sampling_params": {"extra_args": {"logproof": {"ids": [5], "mode": None, "tag": "x"}}}}),
    (IDS, {"sampling_params": {"extra_args": {"enforced_token_ids": [VOCAB]}}}),
    (IDS, {"sampling_params": {"enforced_token_ids": [5]}}), (IDS, {"extra_body": {"enforced_token_ids": [5]}}),
    (IDS, {"enforced_token_ids": [5], "sampling_params": {"max_tokens": 1.0}}),
    (TEXT, {"extra_body": {"enforced_token_ids": [5]}}), (TEXT, {"enforced_ids": [5]}),
    (TEXT, {"enforced_token_ids": [5] * 6, "min_tokens": 7}), (TEXT, {"enforced_token_ids": [5], "logprobs": -1}),
    (CHAT, {"enforced_token_ids": [5], "logprobs": True, "top_logprobs": -1}),
    (TEXT, {"enforced_token_ids": [5], "prompt_embeds": "AAAA"}),
    *((path, {"input": "x", "messages": MESSAGES, "prompt": "x", "max_tokens": 9, "enforced_token_ids": [5]})
      for path in ("/v1/responses", "/v1/messages", "/v1/completions/render", "/v1/chat/completions/render",
                   "/v1/chat/completions/batch", "/invocations", "/generative_scoring", "/v1/embeddings")),
    ("/tokenize", {"prompt": "x", "logprobs_mode": RAW}),
]  # fmt: skip


def test_bad_bodies_are_refused_before_the_engine_sees_them(server: str) -> None:
    needs: dict[str, dict[str, Any]] = {
        TEXT: {"prompt": PROMPT}, CHAT: {"messages": MESSAGES}, IDS: {"token_ids": [5], "sampling_params": {}}
    }  # fmt: skip
    for path, body in BAD:
        status, reply = post(server, path, **{**needs.get(path, {}), **body})
        assert status == 400, (path, str(body)[:200], reply)
        assert reply["error"]["code"] == 400
        assert reply["error"]["message"]
    healthy(server)


@pytest.mark.parametrize("field", ["prompt", "stop_token_ids", "allowed_token_ids", "logprob_token_ids", "logit_bias"])
def test_no_hostile_id_in_any_field_brings_the_server_down(server: str, field: str) -> None:
    """The server decides about its own fields; with an enforced list beside them it must stay healthy too."""
    for value in (-1, VOCAB, 2**31, 2**63, True, 1.0, "5"):
        body: dict[str, Any] = {"prompt": PROMPT, "enforced_token_ids": [28], "logprobs": 1}
        body[field] = {str(value): 1.0} if field == "logit_bias" else [value]
        status, _ = post(server, TEXT, **body)
        assert status in (200, 400), (field, value)
    healthy(server)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [TEXT, CHAT, IDS])
def test_prompt_and_list_that_exceed_the_models_length_are_refused_before_a_stream(
    server: str, path: str, stream: bool
) -> None:
    """One token too many, with the length left out and with it given; one fewer is served."""
    prompt: dict[str, Any] = {
        TEXT: {"prompt": [5] * 1000}, CHAT: {"messages": [{"role": "user", "content": " the" * 970}]},
        IDS: {"token_ids": [5] * 1000, "sampling_params": {}},
    }[path]  # fmt: skip
    room = 1024 - (chat_length(server, prompt["messages"]) if path == CHAT else 1000)
    body = {**prompt, "enforced_token_ids": [28] * (room + 1), "stream": stream}
    status, reply = post(server, path, **body)
    assert status == 400, reply
    assert "length" in reply["error"]["message"]
    if path != IDS:
        assert post(server, path, **body, max_tokens=room + 1)[0] == 400
    if path == TEXT and not stream:
        reply = ask(server, path, **{**body, "enforced_token_ids": [28] * room, "return_token_ids": True})
        assert ids_of(reply) == [28] * room


def chat_length(server: str, messages: Any) -> int:
    status, reply = post(server, "/tokenize", messages=messages)
    assert status == 200
    return int(reply["count"])


def test_odd_but_lawful_bodies_replay_exactly(server: str) -> None:
    ids = [28, 2, 33]
    body: dict[str, Any] = {"prompt": PROMPT, "enforced_token_ids": ids, "return_token_ids": True}
    for more in ({}, {"logprobs": 0}, {"logprobs": None}, {"best_of": 3}, {"min_tokens": 3}, {"n": 1},
                 {"prompt": [PROMPT]}, {"prompt": [[504, 3575]]}, {"echo": True}, {"max_tokens": 3, "stop": ["."]},
                 {"unknown": {"enforced_str": "x"}}, {"bad_words": [" the"]}, {"allowed_token_ids": [7]},
                 {"logit_bias": {"28": -100}}, {"suffix": None}, {"truncate_prompt_tokens": 1}):  # fmt: skip
        reply = ask(server, TEXT, **{**body, **more})
        assert ids_of(reply) == ids, more
        assert reply["logproof"]["enforced"] == 3
        if more.get("logprobs") == 0:
            assert all(math.isfinite(value) for value in logprobs_of(reply))
    assert post(server, TEXT, **{**body, "model": "no-such-adapter"})[0] == 404


def test_a_form_with_a_field_is_refused(server: str) -> None:
    text = b'--b\r\nContent-Disposition: form-data; name="enforced_str"\r\n\r\nx\r\n--b--\r\n'
    kind = {"content-type": "multipart/form-data; boundary=b"}
    request = urllib.request.Request(f"{server}/v1/audio/transcriptions", data=text, headers=kind)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 400


def test_a_body_nested_too_deep_is_refused(server: str) -> None:
    text = b'{"prompt": "x", "enforced_token_ids": [5], "x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    status, reply = send(server, TEXT, text)
    assert (status, json.loads(reply)["error"]["code"]) == (400, 400)


def test_clients_that_hang_up_during_a_replay_harm_nobody(server: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    body = b'{"model":"smollm2","prompt":"x","enforced_token_ids":[28,30,33],"max_tokens":300,"ignore_eos":true}'
    head = f"POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    for cut in (len(body), len(body) // 2):
        for _ in range(4):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(head.encode() + body[:cut])
    healthy(server)


def test_streams_dropped_in_the_middle_end_their_requests(server: str) -> None:
    """Half of a replay is read, then the connection closes; the engine forgets the request and others are unharmed."""
    body = {"model": "smollm2", "prompt": PROMPT, "enforced_token_ids": [28] * 400, "stream": True}
    plain = {"prompt": PROMPT, "temperature": 0, "max_tokens": 8, "return_token_ids": True}
    before = ids_of(ask(server, TEXT, **plain))
    for _ in range(4):
        request = urllib.request.Request(
            server + TEXT, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            reply.readline()
    assert ids_of(ask(server, TEXT, **plain)) == before
    for _ in range(600):
        if running(server) == 0:
            break
        time.sleep(0.1)
    assert running(server) == 0


def running(server: str) -> float:
    with urllib.request.urlopen(f"{server}/metrics", timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("vllm:num_requests_running"))
