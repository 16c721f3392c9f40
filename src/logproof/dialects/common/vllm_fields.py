"""Fields that vLLM adds to OpenAI's routes, alike on each: tokens named by id, replay, its limits.

A stock server ignores the fields of the replay plugin and answers 200.
"""

from __future__ import annotations

from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Request

NO_SUFFIX = "vLLM answers 400 to any suffix, also an empty one"

_NO_PLUGIN = "this endpoint has no working logproof plugin, and a stock vLLM ignores the field with a 200"


def refuse_sampling(request: Request, ledger: Ledger) -> None:
    """Refuse values that vLLM reads otherwise than they say, or answers with a 400."""
    if request.sampling.seed == -1:
        ledger.refuse("sampling.seed", "vLLM takes -1 for no seed at all; choose another")
    if request.choices > 1 and request.sampling.temperature == 0:
        ledger.refuse("sampling.n", "n above 1 needs a temperature above 0")


def refuse_wide(leaf: str, width: int | None, facts: Facts, ledger: Ledger) -> None:
    """Refuse a top width beyond what the endpoint gives, where that is known."""
    if facts.max_logprobs is not None and (width or 0) > facts.max_logprobs:
        ledger.refuse(leaf, f"this endpoint gives at most {facts.max_logprobs} (vLLM's --max-logprobs)")


def lower_top_by(request: Request, ledger: Ledger, *, listed: bool) -> None:
    """Decide `scoring.top_by`: by what sampled tokens and their rivals are named.

    listed: whether the endpoint reads `return_tokens_as_token_ids`.
    """
    scoring, leaf = request.scoring, "scoring.top_by"
    if scoring.sampled is None and scoring.label_ids is None:
        ledger.noop(leaf, "no sampled logprobs are asked")
    elif scoring.top_by == "text":
        ledger.noop(leaf, "texts are this wire's own keys")
    elif listed:
        ledger.constant("/return_tokens_as_token_ids", True, "texts of pieces collapse in the top list; ids do not")
        ledger.covered(leaf, "/return_tokens_as_token_ids")
    else:
        ledger.refuse(leaf, "this endpoint does not list return_tokens_as_token_ids", "vllm_native or sglang_native")


def lower_replay(request: Request, facts: Facts, ledger: Ledger, *, named: bool, instead: str) -> None:
    """Decide the replay leaves. named: whether the reply will name its ids. instead: what serves without the plugin."""
    leaf = "replay.token_ids"
    if not facts.has_plugin("enforced_replay"):
        ledger.refuse(leaf, _NO_PLUGIN, instead)
    if not facts.has_plugin("logprobs_mode"):
        ledger.refuse("replay.logprobs_mode", _NO_PLUGIN)
    if not named:
        ledger.refuse(leaf, "this endpoint does not list return_token_ids: nothing would prove a replay")
    if request.scoring.prompt is not None:
        ledger.refuse(leaf, "a replay and prompt scores do not go together; send two requests")
    if request.choices > 1:
        ledger.refuse(leaf, "a replay has one choice")
    ledger.send(leaf, "/enforced_token_ids", list(request.replay.token_ids or ()))
    ledger.send("replay.logprobs_mode", "/logprobs_mode", f"{request.replay.logprobs_mode}_logprobs")
