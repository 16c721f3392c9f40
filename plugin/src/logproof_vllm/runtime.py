"""What this process knows about itself: contract faults, the runner, the canary, the bound engine.

One :data:`STATUS` a process. The API server writes and reads it; engine and worker processes only write `problems`.
A request that uses the plugin's fields is served only while :meth:`Status.refusal` is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logproof_vllm.fields import FieldLimits, Vocabulary

NOT_RUN = "not run"
PASSED = "passed"
FIX_NAMES = "start the server with VLLM_PLUGINS=logproof,logproof_http"
FIX_V1 = "set VLLM_USE_V2_MODEL_RUNNER=0 and restart"


@dataclass(frozen=True)
class Binding:
    """The engine behind this API server, as far as ingestion needs it."""

    vocabulary: Vocabulary
    max_model_len: int
    runner: str
    default_mode: str
    speculative: bool
    watermark: bool = False
    modified: bool = False


@dataclass
class Status:
    """Mutable record of one process."""

    vllm_version: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    installed: list[str] = field(default_factory=list)
    canary: str = NOT_RUN
    canary_details: Mapping[str, object] = field(default_factory=dict)
    limits: FieldLimits = field(default_factory=FieldLimits)
    binding: Binding | None = None
    engine: Any = None

    def refusal(self) -> str | None:
        """Why a request that needs the plugin cannot be served now; None when it can."""
        if self.problems:
            return "logproof is off on this server: " + "; ".join(self.problems)
        if self.canary == NOT_RUN:
            return f"logproof has not proved itself on this server; {FIX_NAMES}"
        if self.canary != PASSED:
            return f"logproof is off on this server: the start-up canary failed: {self.canary}"
        return None

    def add_problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)


STATUS = Status()


def binding_of(config: Any, tokenizer: Any) -> Binding:
    """Read a vLLM config and tokenizer. Ids are bounded by both the tokenizer and the model's (padded) vocabulary."""
    model = config.model_config
    mode = str(model.logprobs_mode)
    return Binding(
        vocabulary=vocabulary_of(tokenizer, int(model.get_vocab_size())),
        max_model_len=int(model.max_model_len),
        runner=runner_of(config),
        default_mode=mode,
        speculative=config.speculative_config is not None,
        watermark=getattr(config, "watermark_config", None) is not None,
        modified=bool(getattr(model, "is_diffusion", False)),
    )


def vocabulary_of(tokenizer: Any, model_size: int) -> Vocabulary:
    """Ids must exist in the tokenizer and in the logits: a padding row of the head names no token."""
    if tokenizer is None:
        return Vocabulary(model_size)
    highest = getattr(tokenizer, "max_token_id", None)
    tokens = max(len(tokenizer), highest + 1 if isinstance(highest, int) else 0)
    eos = getattr(tokenizer, "eos_token_id", None)

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    def decode(ids: Any) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False))

    usable = isinstance(eos, int) and not isinstance(eos, bool)
    return Vocabulary(min(tokens, model_size), eos if usable else None, encode, decode)


def runner_of(config: Any) -> str:
    """``v1`` or ``v2``: the model runner this engine uses."""
    chosen = getattr(config, "use_v2_model_runner", None)
    if chosen is None:
        from vllm import envs

        chosen = getattr(envs, "VLLM_USE_V2_MODEL_RUNNER", False)
    return "v2" if chosen else "v1"
