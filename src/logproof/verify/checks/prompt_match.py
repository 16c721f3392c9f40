"""Whether the executor ran the requester's prompt: the ids that the verifier made, against the recorded ones.

Cannot see: a trusted engine whose template is not the one that was promised.
"""

from __future__ import annotations

from collections.abc import Sequence

from logproof.verify.artifact.artifact import Artifact
from logproof.verify.artifact.known_request import KnownRequest, MadePrompt
from logproof.verify.check_table import PROMPT
from logproof.verify.verdict import Finding, failed_if, passed, unknown

_SOURCES = {"own": "sent by this verifier", "file": "given by the requester", "signed": "signed by the requester"}


def check_prompt(artifact: Artifact, known: KnownRequest | None, made: MadePrompt | None) -> Finding:
    """Test `prompt`. made: of `known` where it is there, else of the record's own request.

    Ids that contradict the request fail, whoever says what the request was; without the requester's own request
    nothing passes.
    """
    recorded = artifact.tokens.prompt_ids
    if recorded is None:
        return unknown(PROMPT, "no_token_ids", "the record holds no prompt ids")
    prompts = () if made is None else made.prompts
    whose = "the record's own request" if known is None else f"the request {_SOURCES[known.source]}"
    if prompts and recorded not in prompts:
        detail = f"{_difference(prompts, recorded)}; made from {whose}"
        return failed_if(True, passed(PROMPT, detail, len(recorded)), "prompt")
    if known is None:
        same = "its prompt ids fit the request that it holds" if prompts else _unmade(made)
        return unknown(PROMPT, "request_unknown", f"only the record says what was requested; {same}", len(recorded))
    if not prompts:
        return unknown(PROMPT, "prompt_unmade", _unmade(made), len(recorded))
    return passed(PROMPT, f"{len(recorded)} ids as made from {whose}", len(recorded))


def _unmade(made: MadePrompt | None) -> str:
    why = "no engine was asked" if made is None else made.reason or "nobody says why"
    return f"the prompt ids cannot be made: {why}"


def _difference(prompts: Sequence[tuple[int, ...]], recorded: tuple[int, ...]) -> str:
    """Where the recorded ids leave those that were made, without showing either."""
    if len(prompts) > 1:
        return f"{len(recorded)} recorded ids are none of the {len(prompts)} prompts"
    own = prompts[0]
    at = next((i for i, (a, b) in enumerate(zip(own, recorded, strict=False)) if a != b), min(len(own), len(recorded)))
    return f"{len(recorded)} recorded ids, {len(own)} made, different from position {at} on"
