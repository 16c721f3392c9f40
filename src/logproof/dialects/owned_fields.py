"""Which body fields a dialect fills itself, found by lowering the samples: no option may stand in their place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Ledger, OwnedFields
from logproof.dialects.sample_requests import BEST, INPUTS, MESSAGES, SAMPLES, with_leaf
from logproof.ir.facts import Facts
from logproof.ir.leaves import active_leaves
from logproof.ir.request import Request


@cache
def owned_fields(dialect: type[Dialect]) -> OwnedFields:
    """The pointers to which a dialect sends leaves or constants, over all samples and kinds of endpoint."""
    leaves: dict[str, dict[str, None]] = {}
    constants: dict[str, str] = {}
    for facts in (*BEST.values(), Facts()):
        for given in ("text", "messages"):
            base = Request("m", INPUTS[given])
            if not _lowered(dialect, base, facts).stopped(f"input.{given}"):
                for request in _requests(base):
                    ledger = _lowered(dialect, request, facts)
                    for leaf, pointer in ledger.sent().items():
                        leaves.setdefault(pointer, {})[leaf] = None
                    constants.update({c.pointer: c.reason for c in ledger.constants})
    return OwnedFields({pointer: tuple(found) for pointer, found in leaves.items()}, constants)


def _lowered(dialect: type[Dialect], request: Request, facts: Facts) -> Ledger:
    ledger = Ledger(dialect.id, active_leaves(request))
    dialect().lower(request, facts, ledger)
    return ledger


def _requests(base: Request) -> Iterator[Request]:
    """The base with each sample of a leaf beside its input, and where it is of messages, with those of messages."""
    for leaf, values in SAMPLES.items():
        yield from (with_leaf(base, leaf, value) for value in values)
    for messages in MESSAGES.values() if base.input.messages is not None else ():
        yield with_leaf(base, "input.messages", messages)
