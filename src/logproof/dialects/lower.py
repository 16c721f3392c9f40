"""Lowering: a request becomes the bytes that will be sent, and one decision for each leaf. All before any I/O."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from logproof.dialects.dialect import Dialect
from logproof.dialects.ledger import Constant, Decision, Ledger
from logproof.dialects.owned_fields import owned_fields
from logproof.http.exchange import WireRequest
from logproof.ir.facts import Facts
from logproof.ir.leaves import active_leaves
from logproof.ir.request import Request, id_leaves, validate


class Lowered(msgspec.Struct, frozen=True):
    """A request that passed the ledger: what will be sent, and why each part of it is there."""

    wire: WireRequest
    decisions: tuple[Decision, ...]
    constants: tuple[Constant, ...]


def lower(request: Request, dialect: Dialect, facts: Facts, drop: Collection[str] = ()) -> Lowered:
    """Steps 1 to 5: everything that happens before I/O.

    drop: leaves that may be left out where the dialect refuses them. Raises InvalidRequest, RequestRefused.
    """
    validate(request)
    owned = owned_fields(type(dialect)) if request.options else None
    ledger = Ledger(dialect.id, active_leaves(request), drop, owned)
    _refuse_foreign_ids(request, facts, ledger)
    dialect.lower(request, facts, ledger)
    decisions = ledger.close()
    wire = WireRequest(
        path=dialect.path(request),
        body=msgspec.json.encode(ledger.body),
        headers=dialect.request_headers(facts),
        stream=dialect.streams(ledger),
    )
    return Lowered(wire, decisions, tuple(ledger.constants))


def _refuse_foreign_ids(request: Request, facts: Facts, ledger: Ledger) -> None:
    if facts.vocab_size is None:
        return
    for leaf, ids in id_leaves(request).items():
        if max(ids) >= facts.vocab_size:
            ledger.refuse(leaf, f"id {max(ids)} is outside the vocabulary of {facts.vocab_size}")
