"""The field parser: every payload is refused or is a replay of exactly the ids that were asked for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logproof_vllm import fields
from logproof_vllm.fields import FieldLimits, Vocabulary
from logproof_vllm.refusal import Refused

SIZE = 300
EOS = 2


def encode(text: str) -> list[int]:
    """One token for each byte, so digits and text differ: "5" is text id 57."""
    return [byte + 4 for byte in text.encode()]


def decode(ids: Sequence[int]) -> str:
    return bytes(i - 4 for i in ids if i >= 4).decode(errors="replace")


VOCABULARY = Vocabulary(SIZE, EOS, encode, decode)
LIMITS = FieldLimits(tokens=50, top_tokens=6)


def parse(**payload: object) -> fields.FieldPlan | None:
    return fields.parse(payload, VOCABULARY, LIMITS)


def tokens(*texts: object, **more: object) -> dict[str, object]:
    return {"tokens": [{"token": text, **more} for text in texts]}


def test_nothing_set_is_an_ordinary_request() -> None:
    assert parse(prompt="x", enforced_tokens=None, logprobs_mode=None) is None


def test_ids_are_kept_and_nothing_is_appended() -> None:
    plan = parse(enforced_token_ids=[0, 299, 5])
    assert plan is not None
    assert plan.ids == (0, 299, 5)
    assert not plan.eos_appended


BAD_IDS = [-1, SIZE, 2**31, 2**63, 10**400, True, False, 1.0, 1.5, math.nan, math.inf, "5", "5 ", None, [1], {}]


@pytest.mark.parametrize("bad", BAD_IDS, ids=lambda value: repr(value)[:12])
def test_every_bad_id_is_refused_with_its_position(bad: object) -> None:
    with pytest.raises(Refused, match=r"enforced_token_ids\[1\]"):
        parse(enforced_token_ids=[0, bad])


@pytest.mark.parametrize("bad", [[], {}, "12", 5, True, {"tokens": [1]}])
def test_a_list_that_is_none_is_refused(bad: object) -> None:
    with pytest.raises(Refused):
        parse(enforced_token_ids=bad)


def test_ceilings_hold_at_their_exact_edge() -> None:
    assert parse(enforced_token_ids=[1] * 50) is not None
    with pytest.raises(Refused, match="ceiling is 50"):
        parse(enforced_token_ids=[1] * 51)
    assert parse(enforced_tokens=tokens("5", top_tokens=["1"] * 6)) is not None
    with pytest.raises(Refused, match="ceiling is 6"):
        parse(enforced_tokens=tokens("5", top_tokens=["1"] * 7))
    with pytest.raises(Refused, match="ceiling is 50"):
        parse(enforced_tokens=tokens(*["5"] * 51))
    with pytest.raises(Refused, match="characters"):
        parse(enforced_str="a" * 801)


SPELLINGS = [
    ("token_id:7", 7), ("token_id:0", 0), ("7", 7), ("0", 0), ("299", 299),
    ("1_0", None), ("+7", None), ("-1", None), (" 7", None), ("7 ", None), ("٣", None), ("７", None), ("007", None),
    ("0x7", None), ("1e2", None), ("token_id:", None), ("token_id:+7", None), ("token_id: 7", None),
    ("token_id:1_0", None), ("TOKEN_ID:7", None), ("token_id:token_id:7", None), ("", None), ("7\n", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "number"), SPELLINGS)
def test_which_spellings_are_ids(text: str, number: int | None) -> None:
    assert fields.token_id(text) == number


def test_text_is_tokenised_and_one_token_is_asked_for() -> None:
    plan = parse(enforced_tokens=tokens("a", "token_id:9"), enforced_append_eos=False)
    assert plan is not None
    assert plan.ids == (101, 9)


@pytest.mark.parametrize(
    ("bad", "words"),
    [("", "resolves to no token"), ("hello", "5 tokens"), ("1_0", "3 tokens"), (" 7", "2 tokens"), (7, "a string"),
     (None, "null"), (True, "boolean"), ("300", "outside"), ("token_id:99999999999999999999", "tokens")],
)  # fmt: skip
def test_a_token_that_names_no_single_id_is_refused_with_its_position(bad: object, words: str) -> None:
    with pytest.raises(Refused, match=rf"enforced_tokens.tokens\[2\].token: .*{words}"):
        parse(enforced_tokens=tokens("5", "6", bad))


def test_an_unresolvable_text_is_never_id_zero_but_zero_itself_is_accepted() -> None:
    with pytest.raises(Refused):
        parse(enforced_tokens=tokens(""))
    plan = parse(enforced_tokens=tokens("0"), enforced_append_eos=False)
    assert plan is not None
    assert plan.ids == (0,)


def test_text_that_does_not_come_back_from_its_token_is_refused() -> None:
    lossy = Vocabulary(SIZE, EOS, lambda text: [9], lambda ids: "other")
    with pytest.raises(Refused, match="names no token exactly"):
        fields.parse({"enforced_tokens": tokens("x")}, lossy, LIMITS)
    with pytest.raises(Refused, match="does not survive"):
        fields.parse({"enforced_str": "x"}, lossy, LIMITS)


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(Refused, match="Unicode"):
        parse(enforced_str="\ud800")


def test_a_server_without_tokenizer_takes_ids_only() -> None:
    bare = Vocabulary(SIZE)
    assert fields.parse({"enforced_tokens": tokens("5")}, bare, LIMITS) is not None
    with pytest.raises(Refused, match="no tokenizer"):
        fields.parse({"enforced_str": "x"}, bare, LIMITS)


@pytest.mark.parametrize(
    "bad", [[], {}, {"tokens": []}, {"tokens": None}, {"tokens": {}}, {"tokens": ["5"]}, {"tokens": [None]}, "5",
            {"tokens": [{}]}, tokens("5", top_tokens="5"), tokens("5", top_tokens=[5]), tokens("5", top_tokens=[None]),
            tokens("5", top_tokens=["300"])],
)  # fmt: skip
def test_every_malformed_validator_form_is_refused(bad: object) -> None:
    with pytest.raises(Refused):
        parse(enforced_tokens=bad)


def test_eos_is_appended_once_and_only_where_it_may_be() -> None:
    assert parse(enforced_tokens=tokens("5")).ids == (5, EOS)
    assert parse(enforced_tokens=tokens("5", "2")).ids == (5, EOS)
    assert parse(enforced_str="a").eos_appended
    assert parse(enforced_tokens=tokens("5"), enforced_append_eos=False).ids == (5,)
    assert parse(enforced_token_ids=[5], enforced_append_eos=False).ids == (5,)
    without = fields.parse({"enforced_tokens": tokens("5")}, Vocabulary(SIZE, None, encode, decode), LIMITS)
    assert without is not None
    assert without.ids == (5,)


@pytest.mark.parametrize(
    "payload",
    [{"enforced_append_eos": True}, {"enforced_append_eos": 1, "enforced_str": "a"},
     {"enforced_append_eos": True, "enforced_token_ids": [1]}, {"enforced_append_eos": "no", "enforced_str": "a"}],
)  # fmt: skip
def test_the_eos_switch_is_strict(payload: dict[str, object]) -> None:
    with pytest.raises(Refused, match="enforced_append_eos"):
        parse(**payload)


def test_two_lists_are_refused() -> None:
    with pytest.raises(Refused, match="cannot be combined"):
        parse(enforced_token_ids=[1], enforced_str="a")


@pytest.mark.parametrize("bad", ["banana", "raw_logits", "processed_logits", "", 1, True, ["raw_logprobs"], {}])
def test_only_two_modes_exist(bad: object) -> None:
    with pytest.raises(Refused, match="logprobs_mode"):
        parse(logprobs_mode=bad)


def test_a_mode_alone_enforces_nothing() -> None:
    plan = parse(logprobs_mode="processed_logprobs")
    assert plan is not None
    assert (plan.ids, plan.mode.mode, plan.mode.source) == ((), "processed_logprobs", "request")


def test_mode_is_inferred_from_padding_ids_and_says_so() -> None:
    plan = parse(enforced_tokens=tokens(*["5"] * 5, top_tokens=["9", "0", "1", "2"]))
    assert plan is not None
    assert plan.mode.mode == "processed_logprobs"
    assert plan.mode.source == "inferred"
    assert plan.mode.evidence == {"floor_values": 0, "padding_ids": 15, "top_token_entries": 20}


def test_mode_is_inferred_from_a_floor_value() -> None:
    entry = {"tokens": [{"token": "5", "top_logprobs": [-0.1, -9999.0]}]}
    plan = parse(enforced_tokens=entry)
    assert plan is not None
    assert plan.mode.source == "inferred"


@pytest.mark.parametrize("tops", [[], ["0", "1"], ["9", "8", "7", "6"]])
def test_too_little_evidence_is_the_deployments_mode_and_says_so(tops: list[str]) -> None:
    plan = parse(enforced_tokens=tokens(*["5"] * 3, top_tokens=tops))
    assert plan is not None
    assert plan.mode.mode is None
    assert plan.mode.source == "deployment"
    assert plan.mode.evidence["reason"] == "insufficient evidence"


def test_a_given_mode_is_not_inferred() -> None:
    plan = parse(enforced_tokens=tokens(*["5"] * 5, top_tokens=["0", "1"]), logprobs_mode="raw_logprobs")
    assert plan is not None
    assert (plan.mode.mode, plan.mode.source) == ("raw_logprobs", "request")


NASTY = [
    None, True, False, 0, 1, -1, SIZE, 2**31, 2**63, 10**40, 0.0, 1.5, math.nan, math.inf, "", "5", "x", "token_id:5",
    "token_id:999", "\ud800", "٣", "1_0", [], [1], [[]], {}, {"tokens": 1}, {"tokens": []}, {"token": "5"},
]  # fmt: skip


class Choices:
    """Makes a payload out of bytes: a draw of hypothesis for each value would cost a hundred times as much."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.place = 0

    def below(self, count: int) -> int:
        """The next number in [0, count); zeros when the bytes are used up."""
        pair = self.data[self.place : self.place + 2].ljust(2, b"\0")
        self.place += 2
        return int.from_bytes(pair, "little") % count

    def one(self, values: Sequence[object]) -> object:
        return values[self.below(len(values))]

    def nasty(self) -> object:
        return self.one(NASTY)

    def token(self) -> object:
        number = self.below(SIZE + 3)
        return [self.nasty(), str(number), f"token_id:{number}"][self.below(3)]

    def ids(self) -> object:
        count = self.below(55) if self.below(8) == 0 else self.below(6)
        return self.nasty() if self.below(4) == 0 else [self.below(SIZE + 2) - 1 for _ in range(count)]

    def entry(self) -> object:
        if self.below(6) == 0:
            return self.nasty()
        made = {"token": self.token()}
        return made | {"top_tokens": [self.token() for _ in range(self.below(8))]} if self.below(2) else made

    def entries(self) -> object:
        return self.nasty() if self.below(4) == 0 else {"tokens": [self.entry() for _ in range(self.below(5))]}

    def text(self) -> object:
        rest = self.data[self.place :]
        return self.nasty() if self.below(3) == 0 else rest[: self.below(12)].decode("latin-1")


MAKERS: dict[str, Callable[[Choices], object]] = {
    "enforced_token_ids": Choices.ids, "enforced_tokens": Choices.entries, "enforced_str": Choices.text,
    "enforced_append_eos": lambda choices: choices.one([None, True, False] * 3 + [1, "x"]),
    "logprobs_mode": lambda choices: choices.one([*fields.MODES] * 20 + NASTY),
}  # fmt: skip


def payload_of(data: bytes) -> dict[str, object]:
    """One list field or none mostly, two now and then; each other field in a third of the payloads."""
    choices = Choices(data)
    lists = {str(choices.one(fields.LIST_FIELDS)) for _ in range([0, 1, 1, 1, 1, 2][choices.below(6)])}
    chosen = [name for name in MAKERS if name in lists or (name not in fields.LIST_FIELDS and choices.below(3) == 0)]
    return {name: MAKERS[name](choices) for name in chosen}


LENGTH, EACH = 120, 40
"""Bytes of one payload, and payloads of one example: an example costs hypothesis ten times what a payload costs."""


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.binary(min_size=LENGTH * EACH, max_size=LENGTH * EACH))
def test_twenty_thousand_payloads_are_refused_or_exact(data: bytes) -> None:
    for i in range(EACH):
        check(payload_of(data[i * LENGTH : (i + 1) * LENGTH]))


def check(payload: dict[str, object]) -> None:
    try:
        plan = fields.parse(payload, VOCABULARY, LIMITS)
    except Refused as error:
        place, text = error.parameter, str(error)
        assert place
        assert place in text
        assert len(text) < 400
        return
    if plan is None:
        assert all(payload.get(name) is None for name in fields.FIELDS)
        return
    assert plan.ids == expected(payload)
    assert all(type(i) is int and 0 <= i < SIZE for i in plan.ids)
    assert json.loads(json.dumps(plan.mode.evidence)) == plan.mode.evidence


def expected(payload: dict[str, object]) -> tuple[int, ...]:
    """The ids by a second reading of the same payload."""
    ids = payload.get("enforced_token_ids")
    if isinstance(ids, list):
        return tuple(ids)
    text, entries = payload.get("enforced_str"), payload.get("enforced_tokens")
    out: list[int] = []
    if isinstance(text, str):
        out = encode(text)
    elif isinstance(entries, dict):
        for entry in entries["tokens"]:
            digits = entry["token"].removeprefix("token_id:")
            canonical = digits.isascii() and digits.isdigit() and str(int(digits)) == digits
            out += [int(digits)] if canonical else encode(entry["token"])
    if out and payload.get("enforced_append_eos") is not False and out[-1] != EOS:
        out.append(EOS)
    return tuple(out)
