"""Environment variables: read, checked and registered."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logproof_vllm import settings
from logproof_vllm.fields import FieldLimits


@pytest.mark.parametrize("bad", ["x", "0", "-1", "1", "1.5", " 3", "3 ", "٣", "1_0", "99999999999999999999"])
def test_bad_ring_sizes_stop_the_start(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("VLLM_MQ_MAX_CHUNKS", bad)
    with pytest.raises(settings.SettingError, match="VLLM_MQ_MAX_CHUNKS"):
        settings.check()


def test_settings_have_defaults_and_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.READERS:
        monkeypatch.delenv(name, raising=False)
    assert (settings.max_chunks(), settings.strict(), settings.limits()) == (None, False, FieldLimits())
    monkeypatch.setenv("VLLM_MQ_MAX_CHUNKS", "12")
    monkeypatch.setenv("LOGPROOF_MAX_ENFORCED_TOKENS", "7")
    monkeypatch.setenv("LOGPROOF_STRICT", "1")
    assert (settings.max_chunks(), settings.strict(), settings.limits().tokens) == (12, True, 7)
    monkeypatch.setenv("LOGPROOF_STRICT", "yes")
    with pytest.raises(settings.SettingError, match="0 or 1"):
        settings.check()


def test_variables_are_registered_with_vllm_once() -> None:
    envs = SimpleNamespace(environment_variables={"VLLM_MQ_MAX_CHUNKS": "theirs"})
    settings.register(envs)
    assert envs.environment_variables["VLLM_MQ_MAX_CHUNKS"] == "theirs"
    assert set(settings.READERS) <= set(envs.environment_variables)
