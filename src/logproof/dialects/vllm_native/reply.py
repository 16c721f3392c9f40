"""vLLM's reply of /v1/completions: the prompt's own channel, and sampled tokens as `token_id:N`."""

from __future__ import annotations

from collections.abc import Sequence

from logproof.dialects.common import completions, structured
from logproof.dialects.common.completions import CompletionsChoice, LogprobLists
from logproof.dialects.common.vllm_labels import lift_labels
from logproof.dialects.common.vllm_prompt import lift_prompt
from logproof.errors import BadReply, MissingChannel
from logproof.ir.request import Request
from logproof.ir.response import Labels, Meaning, Response, Tokens


def lift(request: Request, body: bytes) -> Response:
    """Read a plain reply. Raises what dialects/dialect.py names."""
    reply = completions.read(body)
    prompt = None
    if request.scoring.prompt is not None and reply.choices:
        first = reply.choices[0]
        prompt = lift_prompt(
            first.prompt_logprobs, first.prompt_token_ids, request.scoring.prompt, request.input.text, "/choices/0"
        )
    choices = [
        completions.lift_choice(request, wire, wire.text, *_lift_sampled(request, wire)) for wire in reply.choices
    ]
    return completions.envelope(request, reply, choices, prompt, prompt.ids if prompt is not None else None)


def _lift_sampled(request: Request, wire: CompletionsChoice) -> tuple[Tokens | None, Labels | None]:
    scoring = request.scoring
    if scoring.sampled is None and scoring.label_ids is None:
        return None, None
    path = f"/choices/{wire.index}/logprobs"
    found = completions.read_logprobs(wire, scoring.sampled or 0)
    if scoring.top_by != "text" and found.tokens and found.ids is None:
        raise BadReply("tokens came as texts, ids were asked", path=f"{path}/tokens")
    meaning = _meaning(request)
    tokens = completions.sampled_tokens(request, found, meaning, path) if scoring.sampled is not None else None
    labels = None
    if scoring.label_ids is not None:
        labels = _lift_labels(found, scoring.label_ids, meaning, f"{path}/top_logprobs")
    return tokens, labels


def _lift_labels(found: LogprobLists, label_ids: Sequence[int], meaning: Meaning, path: str) -> Labels:
    if found.top is None:
        raise MissingChannel("label scores were asked and are absent", path=path)
    return lift_labels(
        [(f"{path}/{i}", entries or {}) for i, entries in enumerate(found.top)], label_ids, meaning, path
    )


def _meaning(request: Request) -> Meaning:
    return structured.sampled_meaning(request.output, request.replay.logprobs_mode or "raw")
