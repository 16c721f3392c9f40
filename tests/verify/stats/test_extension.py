"""A further distance is a function and a row of the table: CONTRIBUTING.md, "Add a distance"."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from docs_script import MAKE_DOCS
from logproof.verify.stats.distance import Pairs
from logproof.verify.stats.distance_table import DISTANCES, ComparedRows, Distance
from verify.builders import PLAIN, artifact, draw, finding, judged, logits, noisy, policy, record, replayed

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def median_abs(pairs: Pairs) -> float:
    """Median absolute residual over entries that both sides list, nats, >= 0; NaN without one."""
    return float(np.median(pairs.size[pairs.both])) if pairs.both.any() else float("nan")


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Distance(
        name="median",
        measures="median absolute difference, nats",
        source="textbook",
        blind="half of the entries",
        of=lambda rows: median_abs(rows.pairs),
    )
    monkeypatch.setitem(DISTANCES, row.name, row)


@pytest.mark.usefixtures("toy")
def test_a_distance_that_was_added_is_reported_and_documented() -> None:
    z = logits(40, 3)
    ids = draw(z, PLAIN, 7)
    far = record(noisy(z, 1, 0.5), ids, 40)
    numbers = finding(judged(artifact(record(z, ids, 20)), replayed(far), policy(), NOW), "S1").statistic
    assert 0.0 < numbers["median"] < numbers["max_abs"]
    page = MAKE_DOCS.pages()["../verification.md"]
    assert "| `median` | median absolute difference, nats | textbook | half of the entries |" in page


@pytest.mark.parametrize("one", DISTANCES.values(), ids=lambda d: d.name)
def test_every_distance_states_its_unit_and_what_it_cannot_see(one: Distance) -> None:
    assert "nats" in one.measures or "no unit" in one.measures
    assert one.blind
    assert one.source


@pytest.mark.parametrize("one", DISTANCES.values(), ids=lambda d: d.name)
def test_equal_rows_have_the_least_distance(one: Distance) -> None:
    z = logits(150, 5)
    own = record(z, draw(z, PLAIN, 7), 20)
    rows = ComparedRows.of(own, own, policy().sigma)
    assert one.of(rows) == pytest.approx(1 / (150 * 20 + 1) if one.name == "gonka_python" else 0.0, abs=1e-12)
