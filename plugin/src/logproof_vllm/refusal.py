"""The one error of a request that the plugin cannot serve."""

from __future__ import annotations


class Refused(ValueError):
    """A request that cannot be served as it stands; ``server/bad_request`` makes a 400 of it.

    The message says what to send instead. ``parameter`` names the field and place (``enforced_token_ids[3]``); None
    where the fault lies in no one field.
    """

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter
