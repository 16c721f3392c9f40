"""The text of a completion as the trusted engine decodes it: what shows whether a stop string ended it."""

from __future__ import annotations

import msgspec


class CompletionText(msgspec.Struct, frozen=True):
    """Texts of recorded ids. whole: of all of them. before: of all but the last."""

    whole: str
    before: str
