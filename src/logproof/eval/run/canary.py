"""Canary: one fixed prompt, scored at the start, in the middle and at the end of a run.

The same prompt must score alike all through; where it does not, the engine gave other numbers to the run's own
prompts too (stale values of a cached prefix, another model behind the URL, an engine going wrong). eval/report/drift.py
compares the scorings.

Each scoring is a call record of the sample key `canary`, its part says which: `0001 start 0` (the session, when,
the number).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logproof.client.connect import Connection
from logproof.dialects.capabilities import missing
from logproof.dialects.lower import lower
from logproof.errors import LogproofError, RequestRefused
from logproof.eval.report.drift import KEY, STARTS, When
from logproof.eval.run.events import Events
from logproof.eval.score.stored_calls import call_record, failed_record
from logproof.ir.request import Input, Request, Sampling, Scoring
from logproof.store.digest import call_key
from logproof.store.records import CallRecord

PROMPT = (
    "The keeper of the lighthouse wrote down the hour, the wind and the height of the waves. At 4:20 the fog came in "
    "from the north, and by 5:05 nobody on the pier could see the boats. He lit the lamp, counted 17 seconds between "
    "two turns, and waited for"
)
TOKENS = 16
"""Tokens that are generated where the wire does not score prompts."""


def canary_request(connection: Connection) -> Request | None:
    """What to ask: the prompt's own scores, else those of a few greedy tokens; None where the wire gives neither."""
    for key, tokens, scoring in (
        ("input_scoring", 1, Scoring(prompt=0)),
        ("sampled_logprobs", TOKENS, Scoring(sampled=0)),
    ):
        request = Request(connection.model, Input(text=PROMPT), Sampling(max_tokens=tokens, temperature=0.0), scoring)
        dialect, facts = connection.client.dialect, connection.facts
        if missing(dialect, facts, key, 1) is None:
            try:
                lower(request, dialect, facts)
            except RequestRefused:
                continue
            return request
    return None


class Canary:
    """Asks every endpoint and records. session: its number in the store, from 1."""

    def __init__(
        self, connections: Sequence[Connection], put: Callable[[CallRecord], None], session: int, events: Events
    ) -> None:
        self._connections, self._put, self._session, self._events = connections, put, session, events
        self._request = canary_request(connections[0])

    async def score(self, when: When) -> None:
        """Score the prompt, at the start as often as the noise needs. A failure is recorded and ends nothing."""
        if self._request is None:
            return
        for place, connection in enumerate(self._connections):
            for number in range(STARTS if when == "start" else 1):
                part = f"{self._session:04} {when} {number}" + (f" at {place}" if place else "")
                await self._score_at(connection, self._request, part)

    async def _score_at(self, connection: Connection, request: Request, part: str) -> None:
        dialect, endpoint = connection.client.dialect.id, connection.endpoint.display
        key = call_key(request, connection.model, dialect, 0)
        try:
            record = call_record(key, KEY, part, await connection.client.call(request), endpoint)
        except LogproofError as error:
            record = failed_record(key, KEY, part, request, dialect, error, endpoint)
        self._put(record)
        self._events.emit("canary", part=part, status=record.status, endpoint=endpoint, error=record.error)
