"""The V1 sampler wraps on tiny tensors: exact against a Python reference, no syncs, transfers counted."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.live

torch = pytest.importorskip("torch", reason="the sampler needs the engine packages")
pytest.importorskip("vllm", reason="the sampler needs the engine packages")

from vllm.v1.sample.logits_processor import (  # noqa: E402
    BUILTIN_LOGITS_PROCESSORS,
    BatchUpdate,
    LogitsProcessors,
    MoveDirectionality,
)  # fmt: skip
from vllm.v1.sample.sampler import Sampler  # noqa: E402

from logproof_vllm import canonical  # noqa: E402
from logproof_vllm.engine import v1, v1_trial, v2  # noqa: E402

VOCAB = 32


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    kept = Sampler.forward, Sampler.sample, list(BUILTIN_LOGITS_PROCESSORS)
    v1.install()
    v1.install()
    yield
    Sampler.forward, Sampler.sample, BUILTIN_LOGITS_PROCESSORS[:] = kept


def params(ids: tuple[int, ...] = (), mode: str | None = None) -> Any:
    entry = {"ids": list(ids), "mode": mode, "tag": "t"}
    return SimpleNamespace(extra_args={canonical.KEY: entry} if ids or mode else None)


def rows(*given: Any) -> Any:
    """The rows processor of a batch; each row is sampling parameters with its output so far."""
    processor = BUILTIN_LOGITS_PROCESSORS[-1](None, torch.device("cpu"), False)
    added = [(i, sampling, None, output) for i, (sampling, output) in enumerate(given)]
    processor.update_state(BatchUpdate(batch_size=len(given), removed=[], added=added, moved=[]))
    return processor


def forward(processor: Any, logits: Any, mode: str = "raw_logprobs", **changes: Any) -> Any:
    metadata = v1_trial.metadata(LogitsProcessors([processor]), logits.shape[0], **changes)
    return Sampler(mode).forward(logits.clone(), metadata)


def logits(count: int) -> Any:
    return torch.randn(count, VOCAB, generator=torch.Generator().manual_seed(1)) * 3


def random_changes(count: int) -> dict[str, Any]:
    generators = {i: torch.Generator().manual_seed(i) for i in range(count)}
    return {
        "all_greedy": False, "all_random": False, "temperature": torch.tensor([0.0] + [0.7] * (count - 1)),
        "top_k": torch.tensor([VOCAB] + [4] * (count - 1)), "top_p": torch.tensor([1.0] + [0.9] * (count - 1)),
        "generators": generators,
    }  # fmt: skip


def test_one_processor_is_added_and_twice_equals_once() -> None:
    assert sum(issubclass(known, v1.Rows) for known in BUILTIN_LOGITS_PROCESSORS) == 1


def test_ids_are_overridden_with_their_own_logprob_and_rank() -> None:
    data = logits(3)
    out = forward(rows((params((7, 9)), []), (params(), []), (params((7, 9)), [7])), data)
    greedy = int(data[1].argmax())
    assert out.sampled_token_ids.flatten().tolist() == [7, greedy, 9]
    expected = torch.log_softmax(data, -1)
    for row, token in enumerate((7, greedy, 9)):
        assert out.logprobs_tensors.logprob_token_ids[row, 0] == token
        assert out.logprobs_tensors.logprobs[row, 0] == expected[row, token]
        assert out.logprobs_tensors.selected_token_ranks[row] == int((expected[row] >= expected[row, token]).sum())


def test_past_the_end_the_row_is_free() -> None:
    data = logits(1)
    out = forward(rows((params((7, 9)), [7, 9])), data)
    assert out.sampled_token_ids.item() == int(data[0].argmax())


def test_placeholders_of_tokens_under_way_count_as_positions() -> None:
    """Under async scheduling the engine's list holds -1 for tokens that are not back from the device yet."""
    out = forward(rows((params((7, 9, 11)), [-1, -1]), (params((7, 9)), [7, -1])), logits(2))
    assert out.sampled_token_ids.flatten().tolist() == [11, int(logits(2)[1].argmax())]


@pytest.mark.parametrize("default", ["raw_logprobs", "processed_logprobs"])
def test_mixed_rows_equal_their_own_runs(default: str) -> None:
    """Each row of a mixed batch reports what a batch in that mode reports, and samples what it would have."""
    data = logits(4)
    modes = ["raw_logprobs", "processed_logprobs", None, "processed_logprobs"]
    plain = rows(*((params(), []) for _ in modes))
    single = {mode: forward(plain, data, mode, **random_changes(4)) for mode in ("raw_logprobs", "processed_logprobs")}
    mixed = forward(rows(*((params((), mode), []) for mode in modes)), data, default, **random_changes(4))
    assert torch.equal(mixed.sampled_token_ids, single["raw_logprobs"].sampled_token_ids)
    for row, mode in enumerate(modes):
        want = single[mode or default].logprobs_tensors
        assert torch.equal(mixed.logprobs_tensors.logprobs[row], want.logprobs[row])
        assert torch.equal(mixed.logprobs_tensors.selected_token_ranks[row], want.selected_token_ranks[row])
        assert mixed.logprobs_tensors.logprobs[row, 1:].exp().sum() <= 1.0 + 1e-5


def test_greedy_rows_in_processed_mode() -> None:
    data = logits(2)
    out = forward(rows((params((), "processed_logprobs"), []), (params(), [])), data)
    assert torch.allclose(out.logprobs_tensors.logprobs[:, 0], torch.log_softmax(data, -1).amax(-1))


def test_no_logprobs_asked_for_costs_no_logprobs() -> None:
    step = v1.plan_step(Sampler(), rows((params((7,), "processed_logprobs"), [])), logits(1),
                        v1_trial.metadata(LogitsProcessors(), 1, max_num_logprobs=None))  # fmt: skip
    assert (step.mask, step.raw) == (None, None)


def test_rows_follow_the_batch() -> None:
    processor = rows((params((1,)), []), (params((2,)), []), (params(), []))
    swap = [(0, 1, MoveDirectionality.SWAP), (1, 2, MoveDirectionality.UNIDIRECTIONAL)]
    processor.update_state(BatchUpdate(batch_size=3, removed=[], added=[], moved=swap))
    assert processor.next_ids(3).tolist() == [2, -1, 1]
    processor.update_state(BatchUpdate(batch_size=2, removed=[2], added=[(0, params(), None, [])], moved=[]))
    assert processor.next_ids(2) is None
    assert not processor.rows


class Stop(Exception):
    """A device synchronisation was asked for."""


@pytest.fixture
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Stop

    for name in ("item", "tolist", "any", "__bool__", "nonzero", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, name, refuse)


def test_the_wraps_never_wait_for_the_device(no_sync: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock sampler is replaced by stubs, so only the plugin's own steps run under the ban."""
    data = logits(2)
    processor = rows((params((7,), "processed_logprobs"), []), (params((), "raw_logprobs"), []))
    metadata = v1_trial.metadata(LogitsProcessors([processor]), 2)
    sampler = SimpleNamespace(logprobs_mode="raw_logprobs", compute_logprobs=Sampler.compute_logprobs)
    sample = v1.wrap_sample(lambda self, logits, metadata: (logits.argmax(-1), None))
    step = v1.plan_step(sampler, processor, data, metadata)
    setattr(sampler, v1._STEP, step)
    sampled, reported = sample(sampler, data, metadata)
    assert sampled.shape == (2,)
    assert reported.shape == (2, VOCAB)


def test_v2_picks_rows_without_waiting_for_the_device(no_sync: None) -> None:
    """The stand-in cuts the logits in place, as V2's top-k does when no processor made a copy."""

    def cut(self: Any, logits: Any) -> tuple[Any, Any]:
        return logits.argmax(-1), logits.masked_fill_(logits < logits.amax(-1, keepdim=True), float("-inf"))

    data = logits(3)
    sampler = SimpleNamespace(**{v2._MIX: [True, False, True]})
    _, picked = v2.wrap_sample(cut)(sampler, data.clone())
    for row, mine in enumerate((True, False, True)):
        want = data[row].masked_fill(data[row] < data[row].amax(), float("-inf")) if mine else data[row]
        assert torch.equal(picked[row], want)


def test_transfers_are_one_a_step_and_none_for_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    original = v1.Rows._to_device

    def counted(self: Any, values: Any, dtype: str) -> Any:
        nonlocal count
        count += 1
        return original(self, values, dtype)

    monkeypatch.setattr(v1.Rows, "_to_device", counted)
    processor = rows((params((), "processed_logprobs"), []), (params(), []))
    for _ in range(10):
        forward(processor, logits(2))
    assert count == 1
    forward(rows((params(), [])), logits(1))
    assert count == 1
    enforced = rows((params((7, 8)), []))
    forward(enforced, logits(1))
    assert count == 2


def test_the_rejection_samplers_calls_pass_through() -> None:
    seen: list[Any] = []
    wrapped = v1.wrap_forward(lambda self, *args: seen.append(args))
    metadata = v1_trial.metadata(LogitsProcessors([rows((params((7,)), []))]), 1)
    sampler = SimpleNamespace()
    wrapped(sampler, "logits", metadata, predict_bonus_token=True, logprobs_mode_override="raw_logits")
    wrapped(sampler, "logits", metadata, logprobs_mode_override="processed_logprobs")
    assert [args[2:] for args in seen] == [(True, "raw_logits"), (False, "processed_logprobs")]
    assert not hasattr(sampler, v1._STEP)


def test_the_trial_holds_for_this_vllm() -> None:
    assert v1_trial.check() == []
