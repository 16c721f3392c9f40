"""The guard around the real grammars of every backend that loads, with the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from plugin_engine import MODEL

pytestmark = pytest.mark.live

pytest.importorskip("vllm", reason="the grammars need the engine packages")

from logproof_vllm import canonical  # noqa: E402
from logproof_vllm.engine import grammar  # noqa: E402

BACKENDS = ("xgrammar", "guidance", "outlines")
DIGITS = "[0-9]{6}"
ALLOW_ALL = -1


@pytest.fixture(scope="module")
def config() -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(model=MODEL, dtype="float32", max_model_len=512, enforce_eager=True).create_engine_config()


@pytest.fixture(autouse=True)
def _hooked() -> Iterator[None]:
    from vllm.v1.structured_output import StructuredOutputManager

    kept = StructuredOutputManager._create_grammar
    grammar.install()
    yield
    StructuredOutputManager._create_grammar = kept


@pytest.fixture(params=BACKENDS)
def manager(config: Any, request: pytest.FixtureRequest) -> Any:
    from vllm.v1.structured_output import StructuredOutputManager

    made: Any = StructuredOutputManager(config)
    made._use_async_grammar_compilation = False
    made.name = request.param
    return made


def compiled(manager: Any, ids: list[int] | None, tag: str = "tag") -> Any:
    """The grammar that the manager makes for a request; enforced when `ids` is given."""
    from vllm.v1.structured_output.backend_types import StructuredOutputOptions

    entry = {canonical.KEY: {"ids": ids, "mode": None, "tag": tag}} if ids else None
    request = SimpleNamespace(
        request_id="r",
        structured_output_request=SimpleNamespace(
            structured_output_key=(StructuredOutputOptions.REGEX, DIGITS), grammar=None
        ),
        sampling_params=SimpleNamespace(
            structured_outputs=SimpleNamespace(_backend=manager.name), all_stop_token_ids={2}, extra_args=entry
        ),
    )
    manager.grammar_init(request)
    return request.structured_output_request.grammar


def digits(manager: Any) -> list[int]:
    return [manager.tokenizer.encode(text, add_special_tokens=False)[0] for text in "12"]


def letter(manager: Any) -> int:
    return int(manager.tokenizer.encode("a", add_special_tokens=False)[0])


def test_an_unbroken_guard_masks_as_the_backend_does(manager: Any) -> None:
    ids = digits(manager)
    plain, guarded = compiled(manager, None), compiled(manager, ids)
    assert not isinstance(plain, grammar.Guard)
    assert isinstance(guarded, grammar.Guard)
    bitmask = manager.backend.allocate_token_bitmask(2)
    for token in ids:
        for row, one in enumerate((plain, guarded)):
            assert one.accept_tokens("r", [token])
            one.fill_bitmask(bitmask, row)
        assert bitmask[0].equal(bitmask[1])
        assert not (bitmask[0] == ALLOW_ALL).all()


def test_a_broken_guard_frees_its_row_alone_and_says_where(manager: Any) -> None:
    """Row 1 held a tight mask of another step; the neighbour's row keeps its grammar."""
    ids = [digits(manager)[0], letter(manager)]
    plain, guarded = compiled(manager, None), compiled(manager, ids, "broken")
    bitmask = manager.backend.allocate_token_bitmask(2)
    for row, one in enumerate((plain, guarded)):
        one.fill_bitmask(bitmask, row)
    before = bitmask[0].clone()
    for token in ids:
        assert guarded.accept_tokens("r", [token])
    for row, one in enumerate((plain, guarded)):
        one.fill_bitmask(bitmask, row)
    assert bitmask[0].equal(before)
    assert (bitmask[1] == ALLOW_ALL).all()
    assert guarded.validate_tokens([ids[1]] * 2) == [ids[1]] * 2
    assert grammar.off_at("broken") == 1


def test_reset_brings_the_grammar_back(manager: Any) -> None:
    guarded = compiled(manager, [letter(manager)])
    bitmask = manager.backend.allocate_token_bitmask(2)
    guarded.fill_bitmask(bitmask, 0)
    guarded.accept_tokens("r", [letter(manager)])
    guarded.reset()
    guarded.fill_bitmask(bitmask, 1)
    assert bitmask[0].equal(bitmask[1])
    assert guarded.validate_tokens([letter(manager)]) == []
