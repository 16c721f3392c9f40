"""The ledger: one decision for every active leaf, made before any I/O.

A dialect's `lower` calls `send`, `noop` or `refuse` for each leaf; a call about an inactive leaf does nothing,
so a dialect is written as one line a leaf. `close` then checks that nothing was forgotten: every active leaf
has a decision, every claimed pointer holds its value in the body, and every key of the body is explained by
a leaf or a declared constant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from logproof.errors import RequestRefused

Kind = Literal["sent", "no-op", "refused", "dropped"]


UNCONFIRMED = "unconfirmed, as nothing in a reply shows that it was applied"
"""Said of every option that is sent: a server may list a field and still do nothing with it."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one leaf. pointer: JSON pointer in the body, for `sent`. reason: for all others, and for options.

    instead: leaf or dialect that does what was asked, where one exists.
    """

    leaf: str
    kind: Kind
    pointer: str | None = None
    reason: str | None = None
    instead: str | None = None


class Constant(msgspec.Struct, frozen=True):
    """A body key that no leaf asked for, with the reason why the dialect sends it."""

    pointer: str
    reason: str


class OwnedFields(msgspec.Struct, frozen=True):
    """Where a dialect puts what requests ask: pointer -> leaves that it ever sends there, or reason of a constant."""

    leaves: Mapping[str, tuple[str, ...]] = {}
    constants: Mapping[str, str] = {}

    def names(self, places: Collection[str]) -> list[str]:
        """The fields that leaves fill in the objects at these pointers."""
        inner = [p.removeprefix(place) for p in self.leaves for place in places if p.startswith(f"{place}/")]
        return list(dict.fromkeys(_parts(pointer)[0] for pointer in inner))

    def leaves_of(self, name: str, places: Collection[str]) -> str | None:
        """The leaves that fill a field, in words; None where none does."""
        found = dict.fromkeys(leaf for p in self._below(self.leaves, name, places) for leaf in self.leaves[p])
        words = [_FEATURE.sub(r"input.messages (\1)", leaf) for leaf in found if not _is_part_of_another(leaf, found)]
        return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or None

    def constant_of(self, name: str, places: Collection[str]) -> str | None:
        """The reason for which the dialect fills a field itself; None where it does not."""
        return next((self.constants[p] for p in self._below(self.constants, name, places)), None)

    def _below(self, pointers: Iterable[str], name: str, places: Collection[str]) -> list[str]:
        heads = [f"{place}/{_escape(name)}/" for place in places]
        return [p for p in pointers if any(f"{p}/".startswith(head) for head in heads)]


class Ledger:
    """Collects the body and the decisions of one request.

    dialect: its id, for messages. active: {leaf: value} of ir/leaves.py. drop: leaves that the caller allows
    to be left out where the dialect refuses them; such a decision is `dropped` and stays on record. owned: fields
    that no option may fill.
    """

    def __init__(
        self,
        dialect: str,
        active: Mapping[str, object],
        drop: Collection[str] = (),
        owned: OwnedFields | None = None,
    ) -> None:
        self.dialect = dialect
        self.owned = owned or OwnedFields()
        self.active = dict(active)
        self.body: dict[str, object] = {}
        self.constants: list[Constant] = []
        self._drop = frozenset(drop)
        self._decisions: dict[str, Decision] = {}
        self._sent: list[tuple[str, object]] = []

    def send(self, leaf: str, pointer: str, value: object = None, reason: str | None = None) -> None:
        """Put a leaf's value (or `value`, its form on this wire) into the body at a JSON pointer.

        reason: what the caller must know of it. A leaf that was refused or dropped before stays out of the body.
        """
        if leaf not in self.active or self.stopped(leaf):
            return
        self._put(pointer, self.active[leaf] if value is None else value)
        self._decide(Decision(leaf, "sent", pointer, reason))

    def covered(self, leaf: str, pointer: str) -> None:
        """Declare that an active leaf is sent within what already stands at a pointer."""
        if leaf in self.active:
            self._decide(Decision(leaf, "sent", pointer=pointer))

    def noop(self, leaf: str, reason: str) -> None:
        """Declare that a leaf changes nothing on this wire, so leaving it out is faithful."""
        if leaf in self.active:
            self._decide(Decision(leaf, "no-op", reason=reason))

    def refuse(self, leaf: str, reason: str, instead: str | None = None) -> None:
        """Refuse a leaf that this wire cannot carry; what was sent of it already is taken back."""
        if leaf not in self.active:
            return
        earlier = self._decisions.get(leaf)
        if earlier is not None and earlier.pointer is not None:
            self._take_back(leaf, earlier.pointer)
        kind: Kind = "dropped" if leaf in self._drop else "refused"
        self._decide(Decision(leaf, kind, reason=reason, instead=instead))

    def stopped(self, leaf: str) -> bool:
        """Whether a leaf was refused, or dropped in place of it."""
        decision = self._decisions.get(leaf)
        return decision is not None and decision.kind in ("refused", "dropped")

    def refuse_all(self, leaves: Mapping[str, str]) -> None:
        """Refuse each of {leaf: reason}; a reason for `input.messages` holds for all its features."""
        for leaf in list(self.active):
            owner = "input.messages" if leaf.startswith("input.messages.") and leaf not in leaves else leaf
            if owner in leaves:
                self.refuse(leaf, leaves[owner])

    def constant(self, pointer: str, value: object, reason: str) -> None:
        """Put a value into the body that no leaf asked for."""
        self._put(pointer, value)
        self.constants.append(Constant(pointer, reason))

    def options(
        self,
        allowed: Collection[str],
        elsewhere: Mapping[str, str] | None = None,
        under: str | Mapping[str, str] = "",
        shared: Collection[str] = (),
    ) -> None:
        """Decide all `options.*`: an allowed name is sent under its own name, any other refused.

        allowed: wire fields that this endpoint is known to read. elsewhere: fields that the dialect never fills ->
        where what they ask for is set. under: pointer of the object that takes the options, or {name: pointer} where
        that depends on them. A field that a leaf or a constant of this dialect fills for any request is no option, but
        for those that the dialect leaves to an option where it does not fill them itself (`shared`).
        """
        places = {"", under} if isinstance(under, str) else {"", *under.values()}
        elsewhere = {**{place.removeprefix("/"): _CONTAINER for place in places if place}, **(elsewhere or {})}
        for name, value in [(k[8:], v) for k, v in self.active.items() if k.startswith("options.")]:
            leaf = f"options.{name}"
            owner = elsewhere.get(name) or self.owned.leaves_of(name, places)
            constant = self.owned.constant_of(name, places)
            if owner is not None and name not in shared:
                self.refuse(leaf, f"this field belongs to a leaf: set {owner}", owner)
            elif constant is not None and name not in shared:
                self.refuse(leaf, f"the dialect fills this field itself: {constant}")
            elif name in allowed and value is not None:
                place = under if isinstance(under, str) else under.get(name, "")
                self.send(leaf, f"{place}/{_escape(name)}", value, UNCONFIRMED)
            else:
                self.refuse(leaf, self._unknown_option(name, allowed, elsewhere, places))

    def close(self) -> tuple[Decision, ...]:
        """Check the ledger and return the decisions in leaf order.

        Raises RequestRefused with all refused and undecided leaves at once; AssertionError when the dialect
        itself is at fault (a pointer that does not hold its value, a body key that nothing explains).
        """
        refusals = [(leaf, self._reason(leaf)) for leaf in self.active if self._is_refused(leaf)]
        if refusals:
            raise RequestRefused(self.dialect, refusals)
        for pointer, value in self._sent:
            found = self._standing(pointer)
            if found is not value and found != value:
                raise AssertionError(f"{self.dialect}: {pointer} was overwritten")
        claimed = {d.pointer for d in self._decisions.values() if d.pointer} | {c.pointer for c in self.constants}
        for pointer in sorted(claimed.difference(pointer for pointer, _ in self._sent)):
            self._standing(pointer)
        stray = list(_unexplained(self.body, "", claimed))
        if stray:
            raise AssertionError(f"{self.dialect}: nothing explains {', '.join(stray)}")
        return tuple(self._decisions[leaf] for leaf in self.active)

    def sent(self) -> dict[str, str]:
        """{leaf: pointer} of what stands in the body."""
        return {d.leaf: d.pointer for d in self._decisions.values() if d.pointer is not None}

    def _unknown_option(
        self, name: str, allowed: Collection[str], elsewhere: Mapping[str, str], places: Collection[str]
    ) -> str:
        if name in _SUCCESSORS:
            return f"this server does not read it; use {_SUCCESSORS[name]}"
        free = [field for field in allowed if self.owned.constant_of(field, places) is None]
        near = difflib.get_close_matches(name, [*free, *elsewhere, *self.owned.names(places)], n=1)
        if not near:
            return "no field that this endpoint is known to read, and servers ignore unknown ones"
        meant = elsewhere.get(near[0]) or self.owned.leaves_of(near[0], places) or near[0]
        return f"no field that this endpoint is known to read, and servers ignore unknown ones; nearest: {meant}"

    def _take_back(self, leaf: str, pointer: str) -> None:
        """Remove a leaf's value from the body, unless another leaf or a constant stands at the same pointer."""
        others = [d.pointer for d in self._decisions.values() if d.leaf != leaf] + [c.pointer for c in self.constants]
        if pointer in others:
            return
        self._sent = [(at, value) for at, value in self._sent if at != pointer]
        *parents, last = _parts(pointer)
        node: object = self.body
        for key in parents:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(last, None)

    def _put(self, pointer: str, value: object) -> None:
        *parents, last = _parts(pointer)
        node = self.body
        for key in parents:
            child = node.setdefault(key, {})
            if not isinstance(child, dict):
                raise AssertionError(f"{self.dialect}: {pointer} runs through a value")
            node = child
        node[last] = value
        self._sent.append((pointer, value))

    def _standing(self, pointer: str) -> object:
        try:
            return resolve(self.body, pointer)
        except KeyError:
            raise AssertionError(f"{self.dialect}: nothing stands at {pointer}") from None

    def _decide(self, decision: Decision) -> None:
        """The first refusal of a leaf stands; otherwise the last decision does."""
        earlier = self._decisions.get(decision.leaf)
        if earlier is None or earlier.kind not in ("refused", "dropped"):
            self._decisions[decision.leaf] = decision

    def _is_refused(self, leaf: str) -> bool:
        decision = self._decisions.get(leaf)
        return decision is None or decision.kind == "refused"

    def _reason(self, leaf: str) -> str:
        decision = self._decisions.get(leaf)
        if decision is None:
            return "the dialect makes no decision about it"
        tail = f" (use {decision.instead})" if decision.instead and decision.instead not in str(decision.reason) else ""
        return f"{decision.reason}{tail}"


def resolve(body: object, pointer: str) -> object:
    """The value at a JSON pointer (RFC 6901) of dicts and lists. Raises KeyError where there is none."""
    node = body
    for key in _parts(pointer):
        if isinstance(node, dict):
            node = node[key]
        elif isinstance(node, (list, tuple)) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            raise KeyError(pointer)
    return node


_FEATURE = re.compile(r"input\.messages\.(\w+)")


def _is_part_of_another(leaf: str, leaves: Collection[str]) -> bool:
    return leaf.startswith("input.messages.") and "input.messages" in leaves


def _unexplained(node: object, pointer: str, claimed: Collection[str]) -> Iterable[str]:
    if pointer in claimed:
        return
    if isinstance(node, dict) and (pointer == "" or any(c.startswith(f"{pointer}/") for c in claimed)):
        for key, child in node.items():
            yield from _unexplained(child, f"{pointer}/{_escape(key)}", claimed)
    else:
        yield pointer


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _parts(pointer: str) -> list[str]:
    """The keys of a JSON pointer."""
    parts = pointer.split("/")[1:]
    return [key.replace("~1", "/").replace("~0", "~") for key in parts] if "~" in pointer else parts


_SUCCESSORS = {
    "guided_json": "output.json_schema",
    "guided_regex": "output.regex",
    "guided_choice": "output.choice",
    "guided_grammar": "output.grammar",
    "guided_json_object": "output.json_object",
    "extra_body": "options (its fields are top-level fields)",
    "best_of": "sampling.n",
    "enforced_tokens": "replay.token_ids",
    "trace_decode_token_ids": "replay.token_ids",
}
"""Wire fields that servers no longer read, or never did, and what does their work here."""

_CONTAINER = "options (its fields are options of their own)"
