from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from logproof.errors import UsageError
from logproof.verify import policy as pol
from logproof.verify.check_table import DISTRIBUTION, SAMPLING, SEED
from logproof.verify.requirements import SamplingRanges
from logproof.verify.stats import conformal
from logproof.verify.stats.distance import Sigma
from verify.builders import policy, requires


def test_round_trip_and_digest() -> None:
    p = policy(scores={"1": {"tz": (0.1, 0.2)}})
    assert pol.load(pol.dump(p)) == p
    assert len(p.digest) == 64
    assert p.digest != policy().digest
    assert p.calibration("tz", 20) == (0.1, 0.2)
    assert p.calibration("tz", 5) == ()
    assert p.calibration("kl", 20) == ()
    assert p.calibration("tz", 3) == ()
    assert [p.level_of(t) for t in (DISTRIBUTION, SEED, SAMPLING)] == pytest.approx([0.01 / 3, 0.01 / 2, 0.01 / 6])
    assert sum(pol.SHARES.values()) == pytest.approx(1.0)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.02, 0.05, 0.1])
def test_the_smallest_p_value_of_needed_scores_counts(level: float) -> None:
    p = policy(level=level)
    least = conformal.least_p(conformal.needed(level / 3))
    assert least <= p.level_of(DISTRIBUTION)
    assert 1.5 * least <= p.level_of(SEED)


def test_longer_texts_without_scores_are_held_to_those_of_shorter_ones() -> None:
    enough, few = tuple(float(i) for i in range(299)), (0.5,) * 298
    p = policy(scores={"1": {"tz": enough}, "2": {"tz": few}, "3": {"tz": enough[::-1]}})
    assert [p.calibration("tz", n) for n in (10, 20, 100)] == [(), enough, enough]
    assert p.calibration("tz", 300) == enough[::-1]
    assert policy(scores={"1": {"tz": few}, "2": {"tz": few[:9]}}).calibration("tz", 100) == few[:9]


def test_expiry() -> None:
    assert not policy().expired(datetime(2026, 12, 31, 0, 0, tzinfo=UTC))
    assert policy().expired(datetime(2026, 12, 31, 0, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"level": 0.0}, "level"),
        ({"level": 0.7}, "level"),
        ({"k": 0}, "k is 0"),
        ({"sigma": Sigma(edges=(-1.0,), scales=(0.1,))}, "one scale more"),
        ({"sigma": Sigma(edges=(-1.0, -2.0), scales=(0.1, 0.1, 0.1))}, "do not rise"),
        ({"sigma": Sigma(edges=(), scales=(0.0,))}, "above 0"),
        ({"holdout": {"1": pol.Holdout(sequences=1, alarms=2)}}, "more alarms"),
        ({"exact": 0.5}, "not exact"),
        ({"requires": requires(sampling=SamplingRanges(temperature=(1.0, 0.5)))}, "temperature 1 to 0.5 is no range"),
        ({"requires": requires(key_ids=("AB",))}, "not 64 hex digits"),
        ({"expires_at": "2025-01-01T00:00:00+00:00"}, "expires before"),
    ],
)
def test_unusable_policies(fields: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        pol.load(pol.dump(policy(**fields)))


def test_every_fault_is_told_at_once() -> None:
    found = pol.faults(policy(level=0.0, k=0, scores={"0": {"tz": (float("nan"),)}}))
    assert len(found) == 3


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"schema": "logproof-policy/3"}'])
def test_malformed(data: bytes) -> None:
    with pytest.raises(UsageError, match="malformed"):
        pol.load(data)


@pytest.mark.parametrize("schema", ["logproof-policy/1", "logproof-policy/2"])
def test_a_policy_without_requirements_is_of_an_older_format(schema: str) -> None:
    document = msgspec.json.decode(pol.dump(policy()))
    del document["requires"]
    with pytest.raises(UsageError, match="older format") as told:
        pol.load(msgspec.json.encode({**document, "schema": schema}))
    assert told.value.hint == "run logproof calibrate again"


def test_unknown_keys_are_refused() -> None:
    document = msgspec.json.decode(pol.dump(policy()))
    with pytest.raises(UsageError, match="unknown field"):
        pol.load(msgspec.json.encode({**document, "levle": 0.5}))


def test_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pol, "MAX_BYTES", 3)
    with pytest.raises(UsageError, match="limit"):
        pol.load(b"    ")


@pytest.mark.parametrize("text", ["yesterday", "2026-01-01T00:00:00"])
def test_times_need_a_zone(text: str) -> None:
    with pytest.raises(UsageError):
        pol.parse_time(text)


def test_selftest_needs_tokens() -> None:
    assert pol.SelfTest(profile="p", tokens=1000, violations=0).passed
    assert not pol.SelfTest(profile="p", tokens=999, violations=0).passed
    assert not pol.SelfTest(profile="p", tokens=5000, violations=1).passed


def test_holdout_interval() -> None:
    low, high = pol.Holdout(sequences=100, alarms=1).interval()
    assert low < 0.01 < high
