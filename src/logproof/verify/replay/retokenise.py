"""Text back to ids, compared and reported: decoding and encoding are no bijection.

A model may sample [he][llo] where the tokenizer writes [hello]. Records keep ids for that reason. Who has texts only
may retokenise them here, learns whether that is known to be what was sampled, and must carry the answer along: such
ids prove nothing about the original tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from logproof.client.tokenizer import Tokenizer
from logproof.verify.stats.align import first_difference


class Retokenised(msgspec.Struct, frozen=True):
    """ids: what the tokenizer gives for the text, special tokens that it adds to every text left out.

    whole: decoding them gives the text again. drift: first index at which they differ from the recorded ids, the
    shorter length where one goes on, None where all are equal or none were recorded. recorded: how many ids were
    recorded, None for none.
    """

    ids: tuple[int, ...]
    whole: bool
    drift: int | None
    recorded: int | None

    @property
    def certain(self) -> bool:
        """Whether the ids are those that were recorded."""
        return self.recorded is not None and self.drift is None

    @property
    def words(self) -> str:
        """The comparison in a sentence."""
        if self.recorded is None:
            kept = "and decode to the same text" if self.whole else "and decode to another text"
            return f"{len(self.ids)} ids were made from text {kept}; the sampled ids are not known"
        if self.drift is None:
            return f"all {len(self.ids)} ids are the recorded ones"
        return f"{len(self.ids)} ids against {self.recorded} recorded, different from token {self.drift} on"


async def retokenise(tokenizer: Tokenizer, text: str, recorded: Sequence[int] | None = None) -> Retokenised:
    """The text's ids, compared with the recorded ones. Raises what the tokenizer's calls raise."""
    added, ids = await tokenizer.encode(""), await tokenizer.encode(text)
    if added and ids[: len(added)] == added:
        ids = ids[len(added) :]
    again = await tokenizer.decode(ids) if ids else ""
    drift = None if recorded is None else first_difference(np.asarray(ids, np.int64), np.asarray(recorded, np.int64))
    return Retokenised(ids, again == text, drift, None if recorded is None else len(recorded))
