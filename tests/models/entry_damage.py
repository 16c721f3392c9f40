"""Ways to damage a scored reply whose tokens are a list of entries; each may be refused, or must change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass
class View:
    """The parts of a decoded reply that are damaged.

    holder: the object that holds the list of entries under `key`. stopped: whether a stop token ends the list.
    ids: the list of ids beside the entries, if any. usage: the object with the count under `count`.
    """

    holder: dict[str, Any]
    key: str
    usage: dict[str, Any]
    count: str
    stopped: bool
    ids: list[int] | None

    @property
    def entries(self) -> list[Any]:
        found: list[Any] = self.holder[self.key]
        return found

    def at(self, data: st.DataObject) -> int:
        """Any position of the list."""
        return data.draw(st.integers(0, len(self.entries) - 1))


Damage = Callable[[View, st.DataObject], None]


def drop(view: View, data: st.DataObject) -> None:
    del view.entries[view.at(data)]


def repeat(view: View, data: st.DataObject) -> None:
    i = view.at(data)
    view.entries.insert(i, view.entries[i])


def swap(view: View, data: st.DataObject) -> None:
    i, j, found = view.at(data), view.at(data), view.entries
    if found[i]["token"] != found[j]["token"]:
        found[i], found[j] = found[j], found[i]


def shift(view: View, data: st.DataObject) -> None:
    if len(view.entries) > 1:
        view.entries.append(view.entries.pop(0))


def cut(view: View, data: st.DataObject) -> None:
    del view.entries[view.at(data) :]


def other_token(view: View, data: st.DataObject) -> None:
    """Not the stop token: the text does not hold it, so that nothing else in a reply of texts names it."""
    i = view.at(data)
    entry = view.entries[i]
    if i == len(view.entries) - 1 and view.stopped:
        return
    entry["token"] = "token_id:77" if entry["token"].startswith("token_id") else "~"
    entry["bytes"] = [126] if entry["bytes"] is not None else None


def other_ids(view: View, data: st.DataObject) -> None:
    if view.ids and data.draw(st.booleans()):
        view.ids.pop()
    elif view.ids:
        view.ids.append(5)


def count(view: View, data: st.DataObject) -> None:
    view.usage[view.count] += data.draw(st.sampled_from((-1, 1, 7)))


def sign(view: View, data: st.DataObject) -> None:
    entry = view.entries[view.at(data)]
    entry["logprob"] = -entry["logprob"] + 0.5


VALUES: tuple[Any, ...] = (float("nan"), float("inf"), float("-inf"), -9999.0, None, "-0.5", True, [])


def value(view: View, data: st.DataObject) -> None:
    view.entries[view.at(data)]["logprob"] = data.draw(st.sampled_from(VALUES))


def rival_value(view: View, data: st.DataObject) -> None:
    listed = view.entries[view.at(data)]["top_logprobs"]
    if listed:
        bad = (float("nan"), None, "-0.5", 0.5)
        data.draw(st.sampled_from(listed))["logprob"] = data.draw(st.sampled_from(bad))


def rival_drop(view: View, data: st.DataObject) -> None:
    """A list keeps one entry more than is wanted, so one may go and two may not."""
    del view.entries[view.at(data)]["top_logprobs"][-2:]


def rival_repeat(view: View, data: st.DataObject) -> None:
    listed = view.entries[view.at(data)]["top_logprobs"]
    if listed:
        listed[-1] = dict(listed[0], logprob=listed[-1]["logprob"])


def no_channel(view: View, data: st.DataObject) -> None:
    view.holder[view.key] = data.draw(st.sampled_from((None, [])))


DAMAGES: tuple[Damage, ...] = (
    drop,
    repeat,
    swap,
    shift,
    cut,
    other_token,
    other_ids,
    count,
    sign,
    value,
    rival_value,
    rival_drop,
    rival_repeat,
    no_channel,
)
