from __future__ import annotations

import json

import pytest

from logproof.proxy.request_plan import CHAT, COMPLETIONS, Asks, asks, plan

ABLE = Asks(ids=True, named=True, width=5)
IDS = frozenset({"token_ids", "prompt_token_ids"})
ALL = IDS | {"logprobs"}
CHAT_ASKS = {"return_token_ids": True, "logprobs": True, "top_logprobs": 6, "return_tokens_as_token_ids": True}
COMPLETION_ASKS = {"return_token_ids": True, "logprobs": 5, "return_tokens_as_token_ids": True}
ID = {"return_token_ids": True}
NAMED = {"return_tokens_as_token_ids": True}

# route, client's fields, fields as forwarded beside them, hidden, certain width
CASES = [
    (CHAT, {}, CHAT_ASKS, ALL, 5),
    (CHAT, {"logprobs": None, "top_logprobs": None}, CHAT_ASKS, ALL, 5),
    (CHAT, {"logprobs": False}, CHAT_ASKS, ALL, 5),
    (CHAT, {"return_token_ids": False, **NAMED}, CHAT_ASKS, ALL, 5),
    (CHAT, ID, CHAT_ASKS, {"logprobs"}, 5),
    (CHAT, {"logprobs": True}, ID, IDS, 0),
    (CHAT, {"logprobs": True, "top_logprobs": 8}, ID, IDS, 0),
    (CHAT, {"logprobs": True, "top_logprobs": 8, **NAMED}, ID, IDS, 7),
    (CHAT, {"logprobs": True, "top_logprobs": 0, **NAMED}, ID, IDS, 0),
    (CHAT, {"top_logprobs": 3}, ID, IDS, 0),
    (CHAT, {"logprob_token_ids": [1, 2]}, ID, IDS, 0),
    (CHAT, {"logprobs": True, "top_logprobs": "many", **NAMED}, ID, IDS, 0),
    (CHAT, {"logprobs": True, **ID}, {}, frozenset(), 0),
    (CHAT, {"echo": True}, {}, frozenset(), None),
    (CHAT, {"use_beam_search": True}, {}, frozenset(), None),
    (COMPLETIONS, {}, COMPLETION_ASKS, ALL, 5),
    (COMPLETIONS, {"echo": False, "logprobs": None}, COMPLETION_ASKS, ALL, 5),
    (COMPLETIONS, {"logprobs": 0}, ID, IDS, 0),
    (COMPLETIONS, {"logprobs": 3}, ID, IDS, 0),
    (COMPLETIONS, {"logprobs": 3, **NAMED}, ID, IDS, 3),
    (COMPLETIONS, {"logprobs": False}, ID, IDS, 0),
    (COMPLETIONS, {"echo": True, "logprobs": 2}, {}, frozenset(), 0),
]


@pytest.mark.parametrize(("route", "given", "added", "hidden", "width"), CASES)
def test_what_is_asked_beside_the_client(
    route: str, given: dict[str, object], added: dict[str, object], hidden: frozenset[str], width: int | None
) -> None:
    body = {"model": "m", **given, "stream": True}
    made = plan(route, json.dumps(body).encode(), ABLE)
    assert json.loads(made.body) == {**body, **added}
    own = {name for name in ID if given.get(name) is True}
    assert (set(made.added), made.hidden, made.width) == (set(added) - own, hidden, width)


@pytest.mark.parametrize("able", [Asks(False, False, 5), Asks(True, False, 5), Asks(False, True, 5)])
def test_nothing_is_asked_where_ids_cannot_be_had(able: Asks) -> None:
    body = b'{"model" : "m"}'
    assert plan(CHAT, body, able).body is body
    assert not able.any


def test_only_listed_fields_are_asked() -> None:
    fields = ("logprobs", "return_token_ids", "return_tokens_as_token_ids")
    assert asks(fields, 5, None) == Asks(True, True, 5)
    assert asks(fields, 5, 5) == Asks(True, True, 4)
    assert asks(fields, 5, 0).width == 0
    assert asks(fields[1:], 5, 20) == Asks(False, False, 5)
    assert asks((), 5, 20).any is False


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(ValueError):
        plan(CHAT, b"[]", ABLE)
