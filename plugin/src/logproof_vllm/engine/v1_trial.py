"""A tiny batch through the sampler, on the CPU: the behaviour that the V1 wraps build on.

No patch, but the half of the contract that signatures cannot show.

Delete when: ``v1`` is deleted.

``forward`` must emit whatever id ``sample`` returned, and report the logprobs that ``sample`` returned with it.
"""

from __future__ import annotations

from typing import Any

VOCAB = 8


def metadata(logitsprocs: Any, rows: int, **changes: Any) -> Any:
    """Greedy sampling metadata for `rows` rows that ask for two logprobs; `changes` replace fields."""
    import inspect

    from vllm.v1.sample.metadata import SamplingMetadata

    values: dict[str, Any] = {
        "temperature": None, "all_greedy": True, "all_random": False, "top_p": None, "top_k": None,
        "generators": {}, "max_num_logprobs": 2, "no_penalties": True, "prompt_token_ids": None,
        "output_token_ids": [[] for _ in range(rows)], "allowed_token_ids_mask": None, "bad_words_token_ids": {},
        "logitsprocs": logitsprocs, "logprob_token_ids": None, "spec_token_ids": None,
    }  # fmt: skip
    values |= changes
    parameters = inspect.signature(SamplingMetadata).parameters
    zeros = {name: _zeros(rows) for name in parameters if name.endswith("_penalties") and name not in values}
    return SamplingMetadata(**{name: value for name, value in (values | zeros).items() if name in parameters})


def _zeros(rows: int) -> Any:
    import torch

    return torch.zeros(rows)


def check() -> list[str]:
    """What the stock sampler does otherwise than the wraps need; empty when it fits."""
    try:
        problem = run()
    except Exception as error:
        return [f"the sampler cannot run a tiny batch: {type(error).__name__}: {error}"]
    return [] if problem is None else [problem]


def run() -> str | None:
    """None when the sampler behaves as needed, else what it did."""
    import torch
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.sampler import Sampler

    own = torch.log_softmax(torch.arange(2.0 * VOCAB).reshape(2, VOCAB).flip(1), dim=-1)

    def sample(self: Any, logits: Any, *args: Any, **kwargs: Any) -> Any:
        """Id 3 and logprobs of its own, whatever the logits are."""
        return torch.full((logits.shape[0],), 3), own

    forced: Any = type("Forced", (Sampler,), {"sample": sample})
    # All logprobs (-1) instead of some: ranks are counted by a compiled function, which takes many seconds to build.
    output = forced().forward(torch.zeros(2, VOCAB), metadata(LogitsProcessors(), 2, max_num_logprobs=-1))
    if output.sampled_token_ids.flatten().tolist() != [3, 3]:
        return "Sampler.forward does not emit what Sampler.sample returned"
    if not torch.equal(output.logprobs_tensors.logprobs, own):
        return "Sampler.forward does not report the logprobs that Sampler.sample returned"
    return None
