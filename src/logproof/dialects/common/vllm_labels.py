"""Label scores as vLLM gives them: the exact logprob of each id that was named, in place of the top list.

On vLLM 0.32 `logprob_token_ids` works only beside `logprobs` and without prompt scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from logproof.dialects.common import logprobs
from logproof.dialects.ledger import Ledger
from logproof.errors import MissingChannel
from logproof.ir.request import Request
from logproof.ir.response import Labels, Meaning
from logproof.ir.tokens import placeholder_id


def lower_labels(request: Request, ledger: Ledger, unlisted: Sequence[str], beside: object) -> None:
    """Decide `scoring.label_ids`, once what else stops the sampled width has been decided.

    unlisted: fields that label scores need and that the endpoint does not list. beside: the value of `logprobs` that
    asks for the sampled tokens' own alone, sent where no sampled scores are.
    """
    scoring, leaf = request.scoring, "scoring.label_ids"
    if scoring.label_ids is None:
        return
    for field in unlisted:
        ledger.refuse(leaf, f"this endpoint does not list {field}", "scoring.sampled")
    if scoring.prompt is not None:
        ledger.refuse(leaf, "vLLM refuses label scores beside prompt scores; send two requests")
    if scoring.sampled:
        ledger.refuse("scoring.sampled", "label scores replace the top-k on this wire; ask 0, or send two requests")
    if scoring.top_by == "text":
        ledger.refuse("scoring.top_by", "label scores are keyed by id")
    ledger.send(leaf, "/logprob_token_ids", list(scoring.label_ids))
    if scoring.sampled is None or ledger.stopped("scoring.sampled"):
        ledger.constant("/logprobs", beside, "vLLM gives label scores only beside logprobs")


def lift_labels(
    positions: Sequence[tuple[str, Mapping[str, float]]], label_ids: Sequence[int], meaning: Meaning, path: str
) -> Labels:
    """Exact scores of the asked ids at every position.

    positions: (JSON pointer, {`token_id:N`: logprob}) of each. Raises MissingChannel for an id that did not come,
    BadReply below `path` for a value that is no logprob.
    """
    rows: list[float | None] = []
    for where, entries in positions:
        by_id = {placeholder_id(key): value for key, value in entries.items()}
        missing = [t for t in label_ids if t not in by_id]
        if missing:
            raise MissingChannel(f"no score for label ids {missing}", path=where)
        rows += [by_id[t] for t in label_ids]
    flat = logprobs.logprobs(rows, path)
    ids = np.array(label_ids, dtype=np.int64)
    return Labels(ids=ids, logprobs=flat.reshape(len(positions), len(label_ids)), meaning=meaning)
