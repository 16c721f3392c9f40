"""The requester's own request and its prompt, as the verifier knows them: never from the party that is judged.

An artifact holds a request too, which is its producer's word. A verdict trusts the one here: what this process sent
itself, what the requester wrote down, or what the requester signed.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

import msgspec

from logproof.verify.artifact.artifact import plain_json

RequestSource = Literal["own", "file", "signed"]


class KnownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the requester made. path: below the endpoint's root. body: the JSON body.

    source: own (this process sent it), file (the requester gives it beside the records), signed (the requester's
    signature over its digest was checked).
    """

    path: str
    body: object
    source: RequestSource


class MadePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt ids that the verifier made from a request, or why there are none.

    prompts: ids of each prompt of the request, in order: a batch has several; empty where none could be made.
    reason: why not, in words, None where they were made. by: the endpoint that made them, or "the request" where the
    request itself holds ids.
    """

    prompts: tuple[tuple[int, ...], ...] = ()
    reason: str | None = None
    by: str | None = None


def request_digest(path: str, body: object) -> str:
    """SHA-256 hex of a request's canonical form: JSON with sorted keys, no spaces, and floats as hexadecimal strings.

    Raises ArtifactError for a number that is not finite.
    """
    form = {"path": path, "body": plain_json(body)}
    return hashlib.sha256(json.dumps(form, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
