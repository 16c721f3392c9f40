"""Content digests: one canonical JSON text a value, and its sha256.

Canonical JSON: keys as strings and sorted, no white space, floats in their shortest form, NaN and infinity
refused (JSON has neither, and a writer that turns them into null makes different values equal). Structs are
taken as msgspec writes them, tuples and sets as lists, bytes as base64, numpy arrays as nested lists. Two
values have one digest exactly when their canonical texts are equal: 1 and 1.0 differ, (1,) and [1] do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from math import isfinite

import msgspec
import numpy as np

from logproof.errors import StoreError


def canonical(value: object) -> str:
    """The canonical JSON text of a msgspec-able value. Raises StoreError for NaN, infinity and unknown types."""
    try:
        return _at_once(value) or _checked(value)
    except (ValueError, TypeError, NotImplementedError, RecursionError) as error:
        raise StoreError(f"a value has no canonical JSON form: {error}") from None


def digest(value: object) -> str:
    """sha256 of the canonical text, 64 hex digits. Raises StoreError like `canonical`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def call_key(request: object, model: object, dialect: str, repeat: int = 0) -> str:
    """Identity of one call: what is asked, of which model (not at which URL), over which dialect, which repeat."""
    return digest({"request": request, "model": model, "dialect": dialect, "repeat": repeat})


def sample_key(task: object, row_digest: str, repeat: int = 0) -> str:
    """Identity of one sample: the task's identity, its row's content and the repeat; never a position or row id."""
    return digest({"task": task, "row": row_digest, "repeat": repeat})


def _at_once(value: object) -> str | None:
    """The text in one pass, or None where a `null` in it may be a NaN, which msgspec writes so, or its keys or
    texts are such that one pass cannot write them."""
    try:
        text = msgspec.json.encode(value, order="sorted", enc_hook=_numpy)
    except (UnicodeEncodeError, TypeError):
        return None
    return None if b"null" in text else text.decode()


def _checked(value: object) -> str:
    plain = msgspec.to_builtins(value, order="deterministic", enc_hook=_numpy)
    _check_all((plain,))
    return _encode(plain)


def _encode(plain: object) -> str:
    try:
        return msgspec.json.encode(plain, order="deterministic").decode()
    except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold but a JSON escape can
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except TypeError:  # numbers as keys, which are written as their text; mixed with strings they were refused before
        return _encode(msgspec.to_builtins(plain, str_keys=True))


def _check_all(values: Collection[object]) -> None:
    """Raises ValueError for a NaN or an infinity; a list of plain numbers costs one pass in C."""
    types = set(map(type, values))
    if float in types and not all(isfinite(value) for value in values if isinstance(value, float)):
        raise ValueError("it holds NaN or infinity")
    if dict in types or list in types:
        for value in values:
            if isinstance(value, dict):
                _check_all(value.values())
            elif isinstance(value, list):
                _check_all(value)


def _numpy(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} values cannot be stored")
