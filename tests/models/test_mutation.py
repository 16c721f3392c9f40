"""No damage to a scored reply yields another number without an error.

Each recorded scored reply of vllm_native and openai_completions is damaged in one place. Then the reply is
refused, or everything that is returned is as it was. Witnesses that make this so: ids of the prompt and of the
completion, usage, the token's own entry in each map, ranks beside logprobs, text offsets, and the sum of counts.

Beyond witness, and so outside the claim (`unprovable` names each case):
* a value that the reply holds once: a rival's logprob or id that keeps order, width and rank; the logprob of a
  scored token at width 0 that stays below -ln(rank); the first prompt id, which nothing scores; cached tokens;
* two positions whose maps both hold both tokens, exchanged: the result is a whole reply of the same counts.
-9999.0 is the wire's own word for minus infinity, and comes back as that, never as a number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logproof.errors import BadReply, StatusError
from logproof.ir.response import Labels, Response, Tokens, TopK
from logproof.models.dialects import get_dialect
from models import damage, wires

FOLDERS = {"vllm_native": "token", "openai_completions": "text"}
SKIPPED_SIZE = 60_000
"""Recordings above this many bytes are left to the others, which have the same shape."""


def scored(folder: str) -> list[wires.Exchange]:
    """The recorded plain replies of a folder that lift and hold scores."""
    found = []
    for name in wires.names(folder):
        exchange = wires.load(folder, name)
        if exchange.stream or len(exchange.body) > SKIPPED_SIZE:
            continue
        try:
            response = wires.lifted(get_dialect(folder), exchange)
        except BadReply:
            continue
        if response.prompt is not None or any(c.tokens is not None for c in response.choices):
            found.append(exchange)
    return found


CASES = [(folder, exchange) for folder in FOLDERS for exchange in scored(folder)]


def flat(response: Response) -> dict[str, Any]:
    """Everything that a response returns of tokens and scores, as plain values."""
    out: dict[str, Any] = {"usage": (response.usage.prompt, response.usage.completion, response.usage.total)}
    out["prompt_ids"] = None if response.prompt_ids is None else response.prompt_ids.tolist()
    for name, channel in [("prompt", response.prompt), *((str(c.index), c.tokens) for c in response.choices)]:
        out.update({f"{name}.{k}": v for k, v in channel_values(channel).items()})
    for choice in response.choices:
        ids = choice.token_ids
        out[f"{choice.index}.choice"] = (choice.text, None if ids is None else ids.tolist(), choice.finish.reason)
        if isinstance(choice.labels, Labels):
            out[f"{choice.index}.labels"] = choice.labels.logprobs.tolist()
    return out


def channel_values(tokens: Tokens | None) -> dict[str, Any]:
    if tokens is None:
        return {}
    values: dict[str, Any] = {"logprobs": numbers(tokens.logprobs), "texts": tokens.texts}
    values["ids"] = None if tokens.ids is None else tokens.ids.tolist()
    values["ranks"] = None if tokens.ranks is None else tokens.ranks.tolist()
    top: TopK | None = tokens.top
    if top is not None:
        keyed = top.by_text if top.ids is None else top.by_id
        values["top"] = [sorted(keyed(i).items()) for i in range(len(tokens))]
    return values


def numbers(column: np.ndarray[Any, Any]) -> list[Any]:
    return ["unscored" if math.isnan(v) else v for v in column.tolist()]


def outcome(folder: str, exchange: wires.Exchange, reply: Any) -> dict[str, Any] | None:
    """What the damaged reply returns, or None where it is refused."""
    body = reply if isinstance(reply, bytes) else damage.encode(reply)
    try:
        return flat(wires.read(get_dialect(folder), wires.request_of(exchange.request), body))
    except (BadReply, StatusError):
        return None


def same_but_impossible(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Equal, where a value that became minus infinity counts as told, not as another number."""
    return all(_alike(before[k], after.get(k)) for k in before)


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b or b == -math.inf)


CASE = st.sampled_from(CASES)
INDEX = st.integers(0, 200)
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def test_there_are_scored_recordings_to_damage() -> None:
    assert {folder for folder, _ in CASES} == set(FOLDERS)
    assert len(CASES) > 50


def interchangeable(exchange: wires.Exchange, damaged: Any, path: damage.Path) -> bool:
    """Whether nothing in the moved reply tells it from one that the engine could have given.

    Maps of a scored prompt that, after the move, still hold their position's own token; ids whose positions no
    score names: the prompt's where it is not scored, the completion's beside texts.
    """
    choice = damaged["choices"][0]
    ids, maps = choice.get("prompt_token_ids"), choice.get("prompt_logprobs")
    scored = exchange.request.get("prompt_logprobs") is not None and ids and maps and len(ids) == len(maps)
    if scored and all(m is not None and str(t) in m for t, m in zip(ids[1:], maps[1:], strict=True)):
        return True
    if path[-1] == "prompt_token_ids":
        return exchange.request.get("prompt_logprobs") is None
    tokens = (damaged["choices"][path[1]].get("logprobs") or {}).get("tokens") or [""]
    return path[-1] == "token_ids" and not tokens[0].startswith("token_id:")


@QUIET
@given(CASE, st.sampled_from(damage.MOVES), INDEX, st.data())
def test_a_moved_position_is_refused_or_changes_nothing(
    case: tuple[str, wires.Exchange], how: Any, i: int, data: st.DataObject
) -> None:
    folder, exchange = case
    reply = exchange.json()
    path = data.draw(st.sampled_from(damage.columns(reply) or [("choices",)]))
    damaged = damage.move(reply, path, how, i)
    after = outcome(folder, exchange, damaged)
    before = outcome(folder, exchange, reply)
    assert after is None or after == before or interchangeable(exchange, damaged, path)


@QUIET
@given(CASE, st.sampled_from(damage.MOVES), INDEX)
def test_a_moved_row_is_refused_or_changes_nothing(case: tuple[str, wires.Exchange], how: Any, i: int) -> None:
    folder, exchange = case
    reply = exchange.json()
    if not (reply["choices"][0].get("logprobs") or {}).get("tokens"):
        return
    damaged = damage.move_rows(reply, 0, how, i)
    after = outcome(folder, exchange, damaged)
    assert after is None or after == outcome(folder, exchange, reply) or same_places(damaged)


def same_places(damaged: Any) -> bool:
    """Whether text offsets are still in order though rows moved: pieces of one character share their offset."""
    offsets = damaged["choices"][0]["logprobs"]["text_offset"]
    return bool(len(set(offsets)) < len(offsets))


@QUIET
@given(CASE, st.sampled_from(damage.JUNK), st.data())
def test_junk_for_a_number_is_refused_or_told_as_impossible(
    case: tuple[str, wires.Exchange], junk: Any, data: st.DataObject
) -> None:
    folder, exchange = case
    reply = exchange.json()
    path = data.draw(st.sampled_from(damage.numbers(reply)))
    if junk == -9999.0 and path[-1] not in ("logprob",) and not isinstance(damage.get(reply, path), float):
        return
    after = outcome(folder, exchange, damage.put(reply, path, junk))
    before = outcome(folder, exchange, reply)
    assert before is not None
    assert after is None or unread(path, junk) or same_but_impossible(before, after)


def unread(path: damage.Path, junk: Any) -> bool:
    """Whether null may stand at a place: counts, ranks and reasons may be unreported, and come back as unknown."""
    return junk is None and (path[0] == "usage" or path[-1] in ("rank", "index", "stop_reason"))


@QUIET
@given(CASE, st.data())
def test_a_changed_sign_is_refused(case: tuple[str, wires.Exchange], data: st.DataObject) -> None:
    folder, exchange = case
    reply = exchange.json()
    places = [p for p in damage.numbers(reply) if damage.get(reply, p) and "cached_tokens" not in p]
    path = data.draw(st.sampled_from(places))
    after = outcome(folder, exchange, damage.put(reply, path, -damage.get(reply, path)))
    before = outcome(folder, exchange, reply)
    assert after is None or after == before


@QUIET
@given(CASE, st.integers(1, 40_000), st.data())
def test_a_changed_id_or_count_is_refused_or_changes_no_score(
    case: tuple[str, wires.Exchange], step: int, data: st.DataObject
) -> None:
    folder, exchange = case
    reply = exchange.json()
    counts = {"prompt_tokens", "completion_tokens", "total_tokens"}
    places = [p for p in damage.numbers(reply) if p[-1] in counts or {"prompt_token_ids", "token_ids"} & set(p)]
    places = [p for p in places if not unprovable_id(folder, p, reply)]
    path = data.draw(st.sampled_from(places or [("usage", "prompt_tokens")]))
    after = outcome(folder, exchange, damage.put(reply, path, damage.get(reply, path) + step))
    before = outcome(folder, exchange, reply)
    assert after is None or after == before


def unprovable_id(folder: str, path: damage.Path, reply: Any) -> bool:
    """Ids without a second witness: the unscored first prompt token, and ids beside text-keyed or absent scores."""
    choice = reply["choices"][path[1]] if path[0] == "choices" else {}
    if "prompt_token_ids" in path:
        return path[-1] == 0 or folder == "openai_completions" or not choice.get("prompt_logprobs")
    tokens = (choice.get("logprobs") or {}).get("tokens") or [""]
    return "token_ids" in path and not tokens[0].startswith("token_id:")


@QUIET
@given(CASE, st.data())
def test_a_renamed_own_key_is_refused(case: tuple[str, wires.Exchange], data: st.DataObject) -> None:
    folder, exchange = case
    reply = exchange.json()
    choice = reply["choices"][0]
    maps = choice.get("prompt_logprobs") if folder == "vllm_native" else None
    if not maps or exchange.request.get("prompt_logprobs") is None or len(maps) < 2:
        return
    i = data.draw(st.integers(1, len(maps) - 1))
    own = str(choice["prompt_token_ids"][i])
    renamed = {str(int(k) + 1) if k == own else k: v for k, v in maps[i].items()}
    assert outcome(folder, exchange, damage.put(reply, ("choices", 0, "prompt_logprobs", i), renamed)) is None


@QUIET
@given(CASE, st.floats(0.0, 0.999))
def test_a_cut_reply_is_refused(case: tuple[str, wires.Exchange], share: float) -> None:
    folder, exchange = case
    assert outcome(folder, exchange, exchange.body[: int(len(exchange.body) * share)]) is None


@pytest.mark.parametrize(("folder", "exchange"), CASES, ids=[f"{f}-{e.name}" for f, e in CASES])
def test_each_choice_and_channel_taken_away_is_refused(folder: str, exchange: wires.Exchange) -> None:
    reply = exchange.json()
    assert outcome(folder, exchange, damage.put(reply, ("choices",), reply["choices"][1:])) is None
    assert outcome(folder, exchange, damage.put(reply, ("choices",), [*reply["choices"], reply["choices"][0]])) is None
    asked = "prompt_logprobs" if exchange.request.get("prompt_logprobs") is not None else "logprobs"
    assert outcome(folder, exchange, damage.put(reply, ("choices", 0, asked), None)) is None
