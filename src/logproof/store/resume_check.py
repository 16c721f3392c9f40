"""Check whether a run may go on in a store: what decides its results must be what the store was made with.

eval/plan/run_identity.py makes what is compared here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from logproof.errors import ResumeRefused
from logproof.store.digest import canonical
from logproof.store.records import RunProvenance

IDENTITY = ("config", "model", "tasks", "datasets", "few_shot")
"""Fields of RunProvenance that a resume must bring unchanged."""

NO_FINGERPRINT = "none"
"""Name of the fingerprint of an endpoint that reports none."""

MAX_LINES = 8
_MAX_VALUE = 60
_ABSENT = object()


def differences(stored: RunProvenance, given: RunProvenance) -> list[str]:
    """One line for each leaf that differs: "config.limit: stored 50, given 60"."""
    lines: list[str] = []
    for name in IDENTITY:
        lines += _compare(name, getattr(stored, name), getattr(given, name))
    return lines


def check_resume(stored: RunProvenance, given: RunProvenance, known: Collection[str], accept: Collection[str]) -> None:
    """Raises ResumeRefused, with all differences, unless `given` may go on where `stored` began.

    known: fingerprints that this run has already met or accepted; a run that was killed before its first session was
    written has none, and is held to those that it began with. accept: those that the caller accepts by name.
    """
    lines = differences(stored, given)
    if lines:
        shown = lines[:MAX_LINES] + ([f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else [])
        raise ResumeRefused(
            "this run differs from the stored one: " + "; ".join(shown),
            hint="undo the change, or start a run of its own in another directory",
        )
    known = known or names(stored.fingerprints)
    strange = sorted(names(given.fingerprints) - set(known) - set(accept))
    if strange:
        raise ResumeRefused(
            f"the endpoint's fingerprint changed: stored {', '.join(sorted(known))}; now {', '.join(strange)}",
            hint=f"if that is meant, accept it by name: {' '.join(f'--accept {name}' for name in strange)}",
        )


def names(fingerprints: Sequence[str]) -> set[str]:
    """The fingerprints as a set that is never empty."""
    return set(fingerprints) or {NO_FINGERPRINT}


def _compare(path: str, stored: object, given: object) -> Iterator[str]:
    if isinstance(stored, Mapping) and isinstance(given, Mapping):
        for key in sorted({*stored, *given}):
            yield from _compare(f"{path}.{key}", stored.get(key, _ABSENT), given.get(key, _ABSENT))
    elif _text(stored) != _text(given):
        yield f"{path}: stored {_short(stored)}, given {_short(given)}"


def _text(value: object) -> str:
    return "absent" if value is _ABSENT else canonical(value)


def _short(value: object) -> str:
    text = _text(value)
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"
