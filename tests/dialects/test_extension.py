"""The two stories of CONTRIBUTING: a dialect of another distribution, and a leaf that every dialect must decide."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest

from dialects import contract
from dialects.toy import THIRD_PARTY
from logproof.cli.main import run
from logproof.dialects import matrix
from logproof.dialects.capabilities import CAPABILITIES
from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger
from logproof.dialects.lower import lower
from logproof.dialects.matrix import capability_matrix, leaf_matrix
from logproof.dialects.registry import BUILT_IN, dialect_ids, get_dialect
from logproof.dialects.sample_requests import SAMPLES
from logproof.errors import RequestRefused, UsageError
from logproof.http.exchange import WireReply
from logproof.ir import leaves
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Request, Sampling

REPLY = WireReply(200, (), b'{"said": "Good day to you."}')


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third party's package on the path, as an installer leaves it."""
    monkeypatch.syspath_prepend(str(THIRD_PARTY))


def test_without_its_distribution_the_dialect_is_unknown() -> None:
    assert "toy" not in dialect_ids()
    with pytest.raises(UsageError, match="unknown dialect 'toy'"):
        get_dialect("toy")


@pytest.mark.usefixtures("installed")
def test_a_third_party_s_dialect_keeps_the_contract() -> None:
    assert "toy" in dialect_ids()
    dialect = get_dialect("toy")
    contract.check_shape(dialect)
    for facts in contract.ENDPOINTS.values():
        for leaf in contract.leaves():
            for value in contract.samples(leaf):
                contract.check_leaf(dialect, facts, leaf, value)
    assert contract.check_reply(dialect, REPLY) == 1


@pytest.mark.usefixtures("installed")
def test_its_options_are_held_against_what_it_sends() -> None:
    plain = Request("m", Input(text="Hi"), sampling=Sampling(max_tokens=4))
    lowered = lower(msgspec.structs.replace(plain, options={"voice": "low"}), get_dialect("toy"), Facts())
    assert lowered.wire.body == b'{"text":"Hi","limit":{"tokens":4},"voice":"low"}'
    with pytest.raises(RequestRefused, match="this field belongs to a leaf: set sampling.max_tokens"):
        lower(msgspec.structs.replace(plain, options={"limit": 1}), get_dialect("toy"), Facts())


@pytest.mark.usefixtures("installed")
def test_the_tables_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    dialect = get_dialect("toy")
    (cell, *_) = leaf_matrix([dialect])["sampling.max_tokens"]["toy"]["vllm"]
    assert (cell.kind, cell.detail) == ("sent", "/limit/tokens")
    assert set(capability_matrix([dialect])) == set(CAPABILITIES)
    assert run(["dialects", "toy", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["capabilities"]["token_input"]) == {"toy"}
    assert shown["leaves"]["sampling.seed"]["toy"]["vllm"][0]["detail"] == "the toy cannot"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["not_toy", "no_dialect"])
def test_an_entry_point_of_another_id_or_thing_is_no_dialect(name: str) -> None:
    with pytest.raises(UsageError, match="does not give a dialect of that id"):
        get_dialect(name)


LEAF = "sampling.mirostat"


class WiderSampling(Sampling, frozen=True):
    """The group with one more leaf."""

    mirostat: float | None = None


class WiderRequest(Request, frozen=True):
    """The request that has the group."""

    sampling: WiderSampling = WiderSampling()


@pytest.fixture
def widened(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The leaf in the record of requests and among the samples: all that adding one takes."""
    monkeypatch.setattr(leaves, "Request", WiderRequest)
    monkeypatch.setattr(matrix, "Request", WiderRequest)
    monkeypatch.setattr(matrix, "Sampling", WiderSampling)
    monkeypatch.setitem(SAMPLES, LEAF, (5.0,))
    caches = (leaves._groups, leaves.leaf_paths)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.mark.usefixtures("widened")
@pytest.mark.parametrize("dialect_id", BUILT_IN)
def test_the_contract_fails_for_every_dialect_until_it_decides_a_leaf(dialect_id: str) -> None:
    assert LEAF in contract.leaves()
    dialect = get_dialect(dialect_id)
    for facts in contract.ENDPOINTS.values():
        contract.check_leaf(dialect, facts, "sampling.max_tokens", 16)
        with pytest.raises(AssertionError, match=f"{LEAF} is undecided"):
            contract.check_leaf(dialect, facts, LEAF, 5.0)
        contract.check_leaf(deciding(dialect), facts, LEAF, 5.0)


def deciding(dialect: Dialect) -> Dialect:
    """The dialect with the one line that the leaf asks of it."""

    class Deciding(type(dialect)):  # type: ignore[misc]
        def lower(self, request: Request, facts: Facts, ledger: Ledger) -> None:
            ledger.send(LEAF, "/mirostat")
            super().lower(request, facts, ledger)

    made: Dialect = Deciding()
    return made
