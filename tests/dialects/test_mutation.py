"""No damage to a scored reply yields another number without an error.

Each recorded scored reply of every wire that gives logprobs, plain and streamed, is damaged in one place. Then
the reply is refused, or everything that is returned is as it was. Witnesses that make this so: ids of the prompt
and of the completion, usage, the token's own entry in each list, ranks beside logprobs, text offsets, the texts
of tokens beside the text, and the sum of counts.

What is beyond any witness, and so outside the claim, is stated once: in `BEYOND`, and here: one finite logprob
changed to another plausible one. -9999.0 is vLLM's own word for minus infinity, and comes back as that, never as
a number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dialects import damage
from dialects.scored import CASES, REQUESTS, Case
from logproof.dialects.common.logprobs import ROUNDING

DIALECTS = (*REQUESTS, "google_genai")


class Damaged(NamedTuple):
    """One damage. what: operator, and how it was applied. path: the place. reply: the damaged reply."""

    what: str
    path: damage.Path
    reply: Any


Always: Callable[[Case, Damaged], bool] = lambda case, done: True  # noqa: E731


class Beyond(NamedTuple):
    """A kind of damage that no second witness contradicts.

    why: in words. what, where: patterns of the operator and of the place, indexes and ids written as `*`.
    when: what else must hold.
    """

    why: str
    what: str
    where: str
    when: Callable[[Case, Damaged], bool] = Always

    def covers(self, case: Case, done: Damaged) -> bool:
        known = re.fullmatch(self.what, done.what) and re.fullmatch(self.where, place(done.path))
        return known is not None and self.when(case, done)


def place(path: damage.Path) -> str:
    """A path as text, with `*` for every index and id."""
    keys = (k if isinstance(k, str) and not re.fullmatch(r"(token_id:)?\d+", k) else "*" for k in path)
    return "/".join(keys)


def by_text(case: Case, done: Damaged) -> bool:
    """Whether scores name their tokens by text."""
    return case.dialect != "sglang_native" and b'"token_id:' not in damage.encode(case.reply)


def prompt_unnamed(case: Case, done: Damaged) -> bool:
    """Whether no score names the prompt's ids that changed: none is asked, texts name them, or the first did."""
    column = done.path[: 1 + max(i for i, k in enumerate(done.path) if k == "prompt_token_ids")]
    before, after = damage.get(case.reply, column), damage.get(done.reply, column)
    echoed = case.dialect == "openai_completions" and by_text(case, done)
    only_first = isinstance(after, list) and len(before) == len(after) and before[1:] == after[1:]
    return case.request.scoring.prompt is None or echoed or only_first


def named_once(case: Case, done: Damaged) -> bool:
    """Whether a reply lacks the list of ids that requests of this dialect ask for."""
    asked = '"prompt_token_ids": [' if case.dialect == "sglang_native" else '"token_ids": ['
    return asked.encode() not in damage.encode(case.reply)


def maps_still_fit(case: Case, done: Damaged) -> bool:
    """Whether maps of a prompt that changed places still hold each position's own token."""
    holder = damage.get(done.reply, done.path[:-1])
    pairs = zip(holder["prompt_token_ids"][1:], holder["prompt_logprobs"][1:], strict=True)
    return all(m is not None and str(t) in m for t, m in pairs)


def one_place(case: Case, done: Damaged) -> bool:
    """Whether tokens share an offset though rows moved: pieces of one character do."""
    offsets = damage.get(case.reply, done.path).get("text_offset") or []
    return len(set(offsets)) < len(offsets)


def untold(case: Case, done: Damaged) -> bool:
    """Whether all offsets say 0 after the damage, which counts as no offsets."""
    return set(damage.get(done.reply, done.path)["text_offset"]) == {0}


def about_zero(case: Case, done: Damaged) -> bool:
    """Whether a value lies so near zero that a float32 softmax may end on either side."""
    return abs(damage.get(case.reply, done.path)) <= ROUNDING


def unscored_event(case: Case, done: Damaged) -> bool:
    """Whether the event that is gone held prompt ids alone."""
    before, after = whole(case), case.outcome(done.reply)
    return after is not None and {**before, "prompt_ids": None} == after


def last_alone(case: Case, done: Damaged) -> bool:
    """Whether the last token alone changed, where a stop ended the text and so left it out."""
    before, after = damage.get(case.reply, done.path), damage.get(done.reply, done.path)
    return len(before) == len(after) and before[:-1] == after[:-1]


def texts_alone(case: Case, done: Damaged) -> bool:
    """Whether nothing but texts changed."""
    before, after = whole(case), case.outcome(done.reply) or {}
    return all(k.endswith(".texts") for k in before if before[k] != after.get(k))


def of_sglang(case: Case, done: Damaged) -> bool:
    """Whether SGLang gave the reply through OpenAI's completions wire."""
    return case.dialect == "openai_completions" and b'"matched_stop"' in damage.encode(case.reply)


def called(case: Case, done: Damaged) -> bool:
    """Whether the reply holds a tool call."""
    return b'"tool_calls": [{' in damage.encode(case.reply)


MOVED = r"move-(swap|shift|replace_by_next)"

BEYOND = (
    Beyond("a rival's id or name that the position holds once", "step|name", r".*(input|output)_top_logprobs/\*/\*/\*"),
    Beyond("the same", "name", r".*(prompt_logprobs|top_logprobs)/\*/[^/]*"),
    Beyond("the same, of a wire whose list need not hold the chosen token", "step", r".*/tokenId"),
    Beyond("a rank that keeps order and bound", "step", r".*/rank"),
    Beyond("a text of a token beside its id", "name", r".*/(chosenCandidates/\*|candidates/\*)/token"),
    Beyond("prompt ids that no score names", rf"{MOVED}|step|junk.*", r".*prompt_token_ids(/\*)?", prompt_unnamed),
    Beyond(
        "prompt ids that came, or not, beside text",
        "move-(drop|cut|repeat)",
        r"\*/choices/\*/prompt_token_ids",
        prompt_unnamed,
    ),
    Beyond("ids beside texts, or beside no scores", rf"{MOVED}|step", r".*\btoken_ids(/\*)?", by_text),
    Beyond(
        "ids of a completion that nothing scores",
        rf"{MOVED}|step",
        r".*\btoken_ids(/\*)?",
        lambda c, d: c.request.scoring.sampled is None,
    ),
    Beyond(
        "ids of scored tokens that the reply names once",
        rf"{MOVED}|rows-.*|step|name",
        r".*(logprobs|tokens(/\*)?|input_token_logprobs/\*/\*)",
        named_once,
    ),
    Beyond("the first token of an echoed prompt", "name|move-replace_by_next", r".*/logprobs/tokens(/\*)?"),
    Beyond(
        "the prompt's length where it is neither scored nor named", "step", r".*meta_info/prompt_tokens", named_once
    ),
    Beyond(
        "a list of rivals, or label scores, of one position for those of another",
        MOVED,
        r".*(input_top_logprobs|output_top_logprobs|output_token_ids_logprobs|topCandidates)",
    ),
    Beyond("maps of a prompt that fit both positions", MOVED, r".*prompt_logprobs", maps_still_fit),
    Beyond("pieces of one character", MOVED.replace("move", "rows"), r".*logprobs", one_place),
    Beyond("a row so doubled that offsets say nothing", "rows-replace_by_next", r".*logprobs", untold),
    Beyond("the sign of a value within the rounding of float32", "sign", r".*", about_zero),
    Beyond("an event of a stream that nothing scored depends on", "move-(drop|cut)", "", unscored_event),
    Beyond("the token of a stop, which the text leaves out", MOVED, r".*logprobs/content", last_alone),
    Beyond("the text of a token beside its id and value", MOVED, r".*token_logprobs/\*", texts_alone),
    Beyond(
        "columns of SGLang's completions: offsets say nothing and a map may lack its token (sglang_native has ids)",
        MOVED,
        r".*logprobs/(tokens|token_logprobs|top_logprobs)",
        of_sglang,
    ),
    Beyond("tokens of a call, which join to no text", MOVED, r".*logprobs/content", called),
    Beyond("a list one short where every other sampled token ends its list", "move-(drop|cut)", r".*/top_logprobs"),
    Beyond("whole events of a stream in another order, or one for another", r"move-(swap|shift|replace_by_next)", ""),
    Beyond(
        "a count, rank, index or reason that may be unreported",
        "junk-None",
        r".*(usage|usageMetadata).*|.*/(rank|index|stop_reason|tokenId)",
    ),
    Beyond(
        "what may be absent, and then is told as unknown",
        "lose",
        r".*(usage|usageMetadata|token_ids|incomplete_details|content(/parts)?)",
    ),
)
"""All damage that may change what is returned."""


def changed(case: Case, done: Damaged) -> str | None:
    """What a damage changed without an error and within the claim, or None."""
    before, after = whole(case), case.outcome(done.reply)
    if after is None or after == before:
        return None
    if done.what == "junk--9999.0" and all(_alike(before[k], after.get(k)) for k in before):
        return None
    if any(b.covers(case, done) for b in BEYOND):
        return None
    differing = [k for k in {*before, *after} if before.get(k) != after.get(k)]
    return f"{case.dialect} {case.name}: {done.what} at /{place(done.path)} changed {sorted(differing)}"


@cache
def _whole(index: int) -> dict[str, Any]:
    found = CASES[index].outcome(CASES[index].reply)
    assert found is not None
    return found


def whole(case: Case) -> dict[str, Any]:
    """What the undamaged reply returns."""
    return _whole(next(i for i, c in enumerate(CASES) if c is case))


def _alike(a: Any, b: Any) -> bool:
    """Equal, where a value that became minus infinity counts as told, not as another number."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b or b == -math.inf)


INDEX = st.integers(0, 200)


def moved(case: Case, data: st.DataObject) -> Damaged | None:
    return _moved(case, data, "move", damage.lists, damage.move)


def rows_moved(case: Case, data: st.DataObject) -> Damaged | None:
    return _moved(case, data, "rows", damage.rows, damage.move_rows)


def _moved(case: Case, data: st.DataObject, name: str, places: Any, act: Any) -> Damaged | None:
    found = places(case.reply)
    if not found:
        return None
    path, how, i = data.draw(st.sampled_from(found)), data.draw(st.sampled_from(damage.MOVES)), data.draw(INDEX)
    return Damaged(f"{name}-{how.__name__}", path, act(case.reply, path, how, i))


def junk(case: Case, data: st.DataObject) -> Damaged | None:
    path, value = data.draw(st.sampled_from(damage.numbers(case.reply))), data.draw(st.sampled_from(damage.JUNK))
    return Damaged(f"junk-{value!r}", path, damage.put(case.reply, path, value))


def sign(case: Case, data: st.DataObject) -> Damaged | None:
    path = data.draw(st.sampled_from([p for p in damage.numbers(case.reply) if damage.get(case.reply, p)]))
    return Damaged("sign", path, damage.put(case.reply, path, -damage.get(case.reply, path)))


def step(case: Case, data: st.DataObject) -> Damaged | None:
    """Another id, count, rank or index."""
    whole_numbers = [p for p in damage.numbers(case.reply) if isinstance(damage.get(case.reply, p), int)]
    path, by = data.draw(st.sampled_from(whole_numbers)), data.draw(st.integers(-3, 40_000).filter(bool))
    return Damaged("step", path, damage.put(case.reply, path, damage.get(case.reply, path) + by))


def name(case: Case, data: st.DataObject) -> Damaged | None:
    found = damage.names(case.reply)
    if not found:
        return None
    path = data.draw(st.sampled_from(found))
    return Damaged("name", path, damage.rename(case.reply, path, data.draw(st.integers(1, 40_000))))


def lose(case: Case, data: st.DataObject) -> Damaged | None:
    path = data.draw(st.sampled_from(damage.parts(case.reply)))
    return Damaged("lose", path, damage.put(case.reply, path, None))


def cut(case: Case, data: st.DataObject) -> Damaged | None:
    """The bytes of a reply end early; a stream ends before one of its events."""
    if case.stream:
        return Damaged("cut", (), case.reply[: data.draw(st.integers(0, len(case.reply) - 1))])
    body = damage.encode(case.reply)
    return Damaged("cut", (), body[: data.draw(st.integers(0, len(body) - 1))])


OPERATORS = (moved, rows_moved, junk, sign, step, name, lose, cut)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.__name__)
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damage_is_refused_or_changes_nothing(dialect: str, operator: Any, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from([c for c in CASES if c.dialect == dialect]))
    done = operator(case, data)
    assert done is None or changed(case, done) is None


def test_every_wire_with_logprobs_has_scored_replies_plain_and_streamed() -> None:
    kinds = {(c.dialect, c.stream) for c in CASES}
    streamed = ("openai_completions", "openai_chat", "openai_responses", "sglang_native")
    assert kinds == {*((d, False) for d in DIALECTS), *((d, True) for d in streamed)}
    assert len(CASES) > 90
