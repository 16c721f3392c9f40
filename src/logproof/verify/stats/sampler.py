"""The sampler that a record claims: temperature and cuts, and what else bends the distribution that is drawn from."""

from __future__ import annotations

import msgspec

from logproof.verify.artifact.artifact import RecordedSampling

GREEDY_BELOW = 1e-5
"""Temperatures below it are greedy, as vLLM takes them."""


class Sampler(msgspec.Struct, frozen=True):
    """What is done to a distribution before the draw. top_k 0, top_p 1, min_p 0 are off."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the best token is taken."""
        return self.temperature < GREEDY_BELOW

    @property
    def plain(self) -> bool:
        """Whether raw and processed logprobs are the same numbers."""
        return self.temperature == 1.0 and self.top_k == 0 and self.top_p == 1.0 and self.min_p == 0.0


def claimed(sampling: RecordedSampling, mode: str) -> Sampler | str:
    """The sampler to replay on logprobs of this mode, or why there is none.

    Processed logprobs are after temperature and cuts already, constrained ones after a grammar's mask. Penalties,
    biases, masks and grammars change the logits before raw logprobs are taken on some engines and after on others, so
    with them raw logprobs do not give the draw.
    """
    leaves = (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p)
    temperature, top_k, top_p, min_p = leaves
    if temperature is None or top_k is None or top_p is None or min_p is None:
        return "temperature, top_k, top_p or min_p is unresolved"
    bent = bending(sampling, mode)
    if mode == "processed":
        return Sampler(temperature if temperature < GREEDY_BELOW else 1.0)
    if mode not in ("raw", "constrained"):
        return "the logprobs' meaning is unknown"
    if bent:
        return f"{bent[0]} bends the distribution that is drawn from"
    return Sampler(temperature, top_k, top_p, min_p)


_NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (0.0,),
    "presence_penalty": (0.0,),
    "repetition_penalty": (1.0,),
    "logit_bias": ({},),
    "bad_words": ((),),
    "allowed_ids": ((),),
    "min_tokens": (0,),
    "structured_output": ("",),
}


def bending(sampling: RecordedSampling, mode: str = "raw") -> tuple[str, ...]:
    """Leaves that change the distribution beyond temperature and cuts, or are unresolved and might.

    In constrained logprobs a grammar is there already, in processed ones all of them are.
    """
    if mode == "processed":
        return ()
    bent = tuple(name for name, neutral in _NEUTRAL.items() if getattr(sampling, name) not in neutral)
    inside = mode == "constrained" and sampling.structured_output is not None
    return tuple(name for name in bent if not (inside and name == "structured_output"))
