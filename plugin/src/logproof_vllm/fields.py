"""The request fields of the plugin, parsed and checked without vLLM.

In: a mapping that holds the fields of one request body. Out: a :class:`FieldPlan` or ``None`` when no field is set.
Every fault is a :class:`Refused` that names the field and position and says what to send instead.

| field | value | meaning |
|---|---|---|
| ``enforced_token_ids`` | list of ints | emitted as they are; EOS is never appended |
| ``enforced_tokens`` | ``{"tokens": [{"token": str, "top_tokens": [str]}]}`` | one entry a position |
| ``enforced_str`` | text | tokenised as a whole, without special tokens added |
| ``enforced_append_eos`` | bool, default true | for the two forms above: append EOS unless the list ends with it |
| ``logprobs_mode`` | ``raw_logprobs`` or ``processed_logprobs`` | meaning of the sampled tokens' logprobs |

``null`` means unset everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from logproof_vllm.refusal import Refused

LIST_FIELDS = ("enforced_token_ids", "enforced_tokens", "enforced_str")
FIELDS = (*LIST_FIELDS, "enforced_append_eos", "logprobs_mode")
RAW = "raw_logprobs"
PROCESSED = "processed_logprobs"
MODES = (RAW, PROCESSED)

# A recording holds this instead of minus infinity (vLLM clamps logprobs to it).
FLOOR = -9999.0
# Ids a top-k takes when fewer candidates than k survive a mask: ties at minus infinity resolve to the lowest ids.
PADDING_IDS = 4
PADDING_SHARE = 0.10
MIN_EVIDENCE = 10

_DECIMAL = re.compile(r"(?:0|[1-9][0-9]{0,18})", re.ASCII)
_PREFIX = "token_id:"


@dataclass(frozen=True)
class FieldLimits:
    """Ceilings on what one request may carry (counts; ``body_bytes`` in bytes)."""

    tokens: int = 131_072
    top_tokens: int = 128
    body_bytes: int = 33_554_432


@dataclass(frozen=True)
class Vocabulary:
    """What resolves and bounds ids: ``size`` is exclusive, ``encode`` adds no special tokens."""

    size: int
    eos: int | None = None
    encode: Callable[[str], Sequence[int]] | None = None
    decode: Callable[[Sequence[int]], str] | None = None


@dataclass(frozen=True)
class ModeChoice:
    """The logprobs mode of a request: ``mode`` None is the deployment's; ``source`` says who chose it."""

    mode: str | None
    source: str
    evidence: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class FieldPlan:
    """What the engine must do for one request; ``ids`` is empty when only the mode was set."""

    ids: tuple[int, ...]
    mode: ModeChoice
    eos_appended: bool = False


def parse(payload: Mapping[str, object], vocabulary: Vocabulary, limits: FieldLimits) -> FieldPlan | None:
    """Read the fields of one request. Raises :class:`Refused`."""
    present = [name for name in FIELDS if payload.get(name) is not None]
    if not present:
        return None
    lists = [name for name in LIST_FIELDS if name in present]
    if len(lists) > 1:
        raise _fault(lists[1], f"cannot be combined with {lists[0]}; send one list")
    mode = _mode(payload)
    append = _append_eos(payload, lists)
    if not lists:
        return FieldPlan((), mode)
    name = lists[0]
    ids, inferred = _read_list(name, payload[name], vocabulary, limits)
    appended = append and vocabulary.eos is not None and ids[-1] != vocabulary.eos
    if appended and vocabulary.eos is not None:
        ids = [*ids, vocabulary.eos]
    return FieldPlan(tuple(ids), mode if mode.mode else inferred, appended)


def token_id(text: str) -> int | None:
    """The id a token string spells: ``token_id:N`` or a bare canonical decimal; None when it is text."""
    digits = text.removeprefix(_PREFIX)
    return int(digits) if _DECIMAL.fullmatch(digits) else None


def check_ids(name: str, value: object, size: int, limits: FieldLimits) -> list[int]:
    """A non-empty list of plain ints in [0, size). Raises :class:`Refused` naming the position."""
    if not isinstance(value, list | tuple):
        raise _fault(name, f"must be a list of integers, got {_kind(value)}")
    _check_length(name, len(value), limits.tokens)
    return [_check_id(f"{name}[{i}]", item, size) for i, item in enumerate(value)]


def _read_list(name: str, value: object, vocabulary: Vocabulary, limits: FieldLimits) -> tuple[list[int], ModeChoice]:
    unknown = ModeChoice(None, "deployment")
    if name == "enforced_token_ids":
        return check_ids(name, value, vocabulary.size, limits), unknown
    if name == "enforced_str":
        return _read_text(name, value, vocabulary, limits), unknown
    return _read_tokens(name, value, vocabulary, limits)


def _read_text(name: str, value: object, vocabulary: Vocabulary, limits: FieldLimits) -> list[int]:
    if not isinstance(value, str):
        raise _fault(name, f"must be a string, got {_kind(value)}")
    if len(value) > limits.tokens * 16:
        raise _fault(name, f"has {len(value)} characters; the ceiling is {limits.tokens * 16}")
    ids = check_ids(name, list(_encode(name, value, vocabulary)), vocabulary.size, limits)
    if vocabulary.decode is not None and vocabulary.decode(ids) != value:
        raise _fault(name, "does not survive tokenising and decoding; send enforced_token_ids")
    return ids


def _read_tokens(name: str, value: object, vocabulary: Vocabulary, limits: FieldLimits) -> tuple[list[int], ModeChoice]:
    entries = value.get("tokens") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise _fault(name, 'must be {"tokens": [{"token": ..., "top_tokens": [...]}, ...]}')
    _check_length(f"{name}.tokens", len(entries), limits.tokens)
    ids: list[int] = []
    tops: list[list[str]] = []
    floors = 0
    for i, entry in enumerate(entries):
        where = f"{name}.tokens[{i}]"
        if not isinstance(entry, dict):
            raise _fault(where, f"must be an object with a token, got {_kind(entry)}")
        ids.append(_resolve(f"{where}.token", entry.get("token"), vocabulary))
        tops.append(_top_tokens(f"{where}.top_tokens", entry.get("top_tokens"), vocabulary.size, limits))
        floors += _floors(entry)
    return ids, infer_mode(tops, floors)


def _resolve(where: str, value: object, vocabulary: Vocabulary) -> int:
    if not isinstance(value, str):
        raise _fault(where, f"must be a string, got {_kind(value)}")
    number = token_id(value)
    if number is not None:
        return _check_id(where, number, vocabulary.size)
    ids = list(_encode(where, value, vocabulary))
    if not ids:
        raise _fault(where, f"{_short(value)} resolves to no token; send token_id:N")
    if len(ids) > 1:
        raise _fault(where, f"{_short(value)} is {len(ids)} tokens, not one; send token_id:N")
    if vocabulary.decode is not None and vocabulary.decode(ids) != value:
        raise _fault(where, f"{_short(value)} names no token exactly; send token_id:N")
    return _check_id(where, ids[0], vocabulary.size)


def _encode(where: str, text: str, vocabulary: Vocabulary) -> Sequence[int]:
    if vocabulary.encode is None:
        raise _fault(where, "is text, and this server has no tokenizer; send ids")
    try:
        return vocabulary.encode(text)
    except (UnicodeError, TypeError, ValueError) as error:
        raise _fault(where, "cannot be tokenised (not valid Unicode text); send ids") from error


def _top_tokens(where: str, value: object, size: int, limits: FieldLimits) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _fault(where, f"must be a list of strings, got {_kind(value)}")
    if len(value) > limits.top_tokens:
        raise _fault(where, f"has {len(value)} entries; the ceiling is {limits.top_tokens}")
    for i, item in enumerate(value):
        if not isinstance(item, str):
            raise _fault(f"{where}[{i}]", f"must be a string, got {_kind(item)}")
        number = token_id(item)
        if number is not None:
            _check_id(f"{where}[{i}]", number, size)
    return value


def _floors(entry: Mapping[str, object]) -> int:
    values = entry.get("top_logprobs")
    if not isinstance(values, list):
        return 0
    return sum(isinstance(v, int | float) and not isinstance(v, bool) and v <= FLOOR for v in values)


def infer_mode(tops: Sequence[Sequence[str]], floors: int) -> ModeChoice:
    """Guess the mode from recorded top tokens; only *processed* leaves marks, so nothing else is ever inferred.

    Floor values (<= -9999) exist only after a mask. Without them, low padding ids must fill more than a tenth of
    at least ten entries.
    """
    entries = [token_id(text) for row in tops for text in row]
    padding = sum(number is not None and number < PADDING_IDS for number in entries)
    evidence: dict[str, int | float | str] = {
        "floor_values": floors, "padding_ids": padding, "top_token_entries": len(entries)
    }  # fmt: skip
    if floors:
        return ModeChoice(PROCESSED, "inferred", evidence)
    if len(entries) >= MIN_EVIDENCE and padding > PADDING_SHARE * len(entries):
        return ModeChoice(PROCESSED, "inferred", evidence)
    return ModeChoice(None, "deployment", evidence | {"reason": "insufficient evidence"})


def _mode(payload: Mapping[str, object]) -> ModeChoice:
    value = payload.get("logprobs_mode")
    if value is None:
        return ModeChoice(None, "deployment")
    if not isinstance(value, str) or value not in MODES:
        raise _fault("logprobs_mode", f"must be one of {', '.join(MODES)}, got {_short(value)}")
    return ModeChoice(value, "request")


def _append_eos(payload: Mapping[str, object], lists: Sequence[str]) -> bool:
    value = payload.get("enforced_append_eos")
    appends = bool(lists) and lists[0] != "enforced_token_ids"
    if value is None:
        return appends
    if not isinstance(value, bool):
        raise _fault("enforced_append_eos", f"must be true or false, got {_kind(value)}")
    if not lists:
        raise _fault("enforced_append_eos", "needs enforced_tokens or enforced_str")
    if value and not appends:
        raise _fault("enforced_append_eos", "enforced_token_ids never appends; add the EOS id to the list")
    return value


def _fault(where: str, message: str) -> Refused:
    """The error for the value at `where`: a field's name, or a place inside its value."""
    return Refused(f"{where}: {message}", where)


def _check_length(name: str, length: int, ceiling: int) -> None:
    if length == 0:
        raise _fault(name, "is empty; leave it out for an ordinary request")
    if length > ceiling:
        raise _fault(name, f"has {length} entries; the ceiling is {ceiling}")


def _check_id(where: str, value: object, size: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _fault(where, f"must be an integer token id, got {_kind(value)}")
    if not 0 <= value < size:
        raise _fault(where, f"{_short(value)} is outside the vocabulary [0, {size})")
    return value


def _kind(value: object) -> str:
    return {"NoneType": "null", "dict": "an object", "str": "a string", "list": "a list", "bool": "a boolean",
            "float": "a number with a fraction"}.get(type(value).__name__, type(value).__name__)  # fmt: skip


def _short(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 256:
        return "an integer of more than 256 bits"
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
