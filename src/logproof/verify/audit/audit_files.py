"""Audits on disk: one JSON object a file, as `audit --record` writes it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from logproof.errors import UsageError
from logproof.files import read_bounded
from logproof.verify.audit.evidence import Audit


def read_audit(path: Path) -> Audit:
    """The audit of a file. Raises UsageError where it holds none, StoreError."""
    try:
        return msgspec.json.decode(read_bounded(path), type=Audit)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no recorded audit: {error}") from None
