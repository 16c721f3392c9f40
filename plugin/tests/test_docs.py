"""docs/plugin.md says what the code says."""

from __future__ import annotations

from pathlib import Path

from logproof_vllm import contract, fields, settings

TEXT = (Path(__file__).parents[2] / "docs" / "plugin.md").read_text()


def test_the_contract_table_is_current() -> None:
    shown = TEXT.split("-->\n", 1)[1].split("\n<!-- end of contract", 1)[0]
    assert shown == contract.markdown()


def test_every_field_variable_and_version_is_named() -> None:
    for name in (*fields.FIELDS, *settings.READERS, *contract.V1_VERSIONS, *contract.V2_VERSIONS):
        assert name in TEXT, name


def test_the_shm_arithmetic_is_right() -> None:
    for chunks in (16, 64):
        assert f"{chunks * (16 + 24 * 8)}" in TEXT or f"{chunks * (16 + 24 * 8 + 4)}" in TEXT
