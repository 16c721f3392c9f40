"""What a dialect sends itself is found by lowering, so no table repeats it, and no option stands in its place."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import msgspec
import pytest

from logproof.dialects.ledger import Ledger, OwnedFields
from logproof.dialects.lower import lower
from logproof.dialects.matrix import baseline
from logproof.dialects.owned_fields import owned_fields
from logproof.dialects.registry import BUILT_IN, FITTING, get_dialect
from logproof.dialects.sample_requests import BEST, INPUTS, MESSAGES, SAMPLES, with_leaf
from logproof.errors import RequestRefused
from logproof.ir.facts import Facts
from logproof.ir.leaves import active_leaves
from logproof.ir.request import Request

PLACES = {"", "/sampling_params", "/generationConfig"}
"""Objects that take options, on any wire."""
SHARED = {
    "openai_responses": {"include"},
    "sglang_native": {"frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens"},
}
"""Fields that a dialect leaves to an option where the request gives it no reason to fill them."""


def table(dialect_id: str, name: str) -> Mapping[str, str]:
    found: Mapping[str, str] = getattr(import_module(f"logproof.dialects.{dialect_id}.request"), name)
    return found


@pytest.mark.parametrize("dialect_id", BUILT_IN)
def test_no_option_fills_what_the_dialect_fills(dialect_id: str) -> None:
    dialect = get_dialect(dialect_id)
    owned = owned_fields(type(dialect))
    places = {place for place in PLACES if any(p.startswith(f"{place}/") for p in owned.leaves)}
    constants = {pointer.split("/")[1] for pointer in owned.constants}
    for field in {*owned.names(places), *constants} - SHARED.get(dialect_id, set()):
        for facts in (*BEST.values(), Facts()):
            request = msgspec.structs.replace(baseline(dialect, facts), options={field: [1]})
            with pytest.raises(RequestRefused, match=f"options.{field}: (this field belongs|the dialect fills)"):
                lower(request, dialect, facts)


@pytest.mark.parametrize("dialect_id", BUILT_IN)
def test_fields_of_elsewhere_are_sent_no_leaf(dialect_id: str) -> None:
    owned = owned_fields(type(get_dialect(dialect_id)))
    places = {place for place in PLACES if any(p.startswith(f"{place}/") for p in owned.leaves)}
    assert [field for field in table(dialect_id, "ELSEWHERE") if owned.leaves_of(field, places)] == []


class Attempts(Ledger):
    """Notes every leaf for which the dialect has a pointer, whether or not the leaf was set or refused before."""

    def __init__(self, dialect: str, active: Mapping[str, object]) -> None:
        super().__init__(dialect, active)
        self.pointed: set[str] = set()

    def send(self, leaf: str, pointer: str, value: object = None, reason: str | None = None) -> None:
        self.pointed.add(leaf)
        super().send(leaf, pointer, value, reason)


@pytest.mark.parametrize("dialect_id", BUILT_IN)
def test_a_leaf_is_refused_for_good_or_sent_but_not_both(dialect_id: str) -> None:
    pointed: set[str] = set()
    for facts in (*BEST.values(), Facts()):
        for given in INPUTS.values():
            base = Request("m", given)
            requests = [with_leaf(base, leaf, value) for leaf, values in SAMPLES.items() for value in values]
            requests += [with_leaf(base, "input.messages", messages) for messages in MESSAGES.values()]
            for request in requests:
                ledger = Attempts(dialect_id, active_leaves(request))
                get_dialect(dialect_id).lower(request, facts, ledger)
                pointed |= ledger.pointed
    assert pointed & set(table(dialect_id, "REFUSED")) == set()


def test_every_known_kind_of_endpoint_is_tried() -> None:
    assert set(BEST) == set(FITTING)


def test_what_fills_a_field_is_said_in_words() -> None:
    leaves = {"/a/b": ("sampling.n", "sampling.stop"), "/a": ("model",), "/c/d": ("scoring.sampled",)}
    messages = {"/m": ("input.messages", "input.messages.tool"), "/s": ("input.messages.system",)}
    owned = OwnedFields({**leaves, **messages}, {"/k/l": "why"})
    assert owned.leaves_of("a", [""]) == "sampling.n, sampling.stop or model"
    assert owned.leaves_of("d", ["", "/c"]) == "scoring.sampled"
    assert owned.leaves_of("m", [""]) == "input.messages"
    assert owned.leaves_of("s", [""]) == "input.messages (system)"
    assert owned.leaves_of("k", [""]) is None
    assert owned.constant_of("k", [""]) == "why"
    assert owned.constant_of("l", [""]) is None
    assert owned.names(["", "/c"]) == ["a", "c", "d", "m", "s"]


def test_an_option_for_a_filled_field_is_refused_with_what_fills_it() -> None:
    owned = OwnedFields({"/top": ("sampling.n",), "/config/k": ("sampling.top_k",)}, {"/flag": "why", "/pad": "so"})
    names = ("top", "k", "flag", "pad", "config", "fla")
    ledger = Ledger("d", {f"options.{name}": 1 for name in names}, owned=owned)
    ledger.options([*names[:-1], "x"], {}, {"x": "/config"}, shared=("pad",))
    with pytest.raises(RequestRefused) as caught:
        ledger.close()
    assert dict(caught.value.refusals) == {
        "options.top": "this field belongs to a leaf: set sampling.n",
        "options.k": "this field belongs to a leaf: set sampling.top_k",
        "options.flag": "the dialect fills this field itself: why",
        "options.config": "this field belongs to a leaf: set options (its fields are options of their own)",
        "options.fla": "no field that this endpoint is known to read, and servers ignore unknown ones",
    }
    assert ledger.body == {"pad": 1}
