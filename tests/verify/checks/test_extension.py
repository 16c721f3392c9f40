"""A further check is a row of the table, a function, and its place in a list: CONTRIBUTING.md, "Add a check"."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

import logproof.verify
from docs_script import MAKE_DOCS
from logproof.verify import check_table
from logproof.verify.check_table import CHECKS, Check
from logproof.verify.checks import recorded, replayed
from logproof.verify.checks.case import RecordedCase, ReplayedCase
from logproof.verify.verdict import Finding, failed_if, passed
from verify import builders
from verify.builders import PLAIN, artifact, draw, finding, judged, logits, policy, record

ROOM = Path(logproof.verify.__file__).parent
ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 6, 1, tzinfo=UTC)
TOY = Check(
    id="T1", name="toy", sees="whether there are ten tokens", source="these tests", file="checks/toy.py", blind="words"
)


def ten_tokens(count: int) -> list[Finding]:
    """Passed for ten tokens, failed for any other number."""
    return [failed_if(count != 10, passed(TOY, f"{count} tokens", count), "sampling")]


def check_record(case: RecordedCase) -> list[Finding]:
    return ten_tokens(len(case.columns))


def check_replay(case: ReplayedCase) -> list[Finding]:
    return ten_tokens(len(case.verifier))


@pytest.fixture(params=["record", "replay"])
def toy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(check_table.CHECKS, TOY.id, TOY)
    if request.param == "record":
        monkeypatch.setattr(recorded, "RECORD_CHECKS", (*recorded.RECORD_CHECKS, check_record))
    else:
        monkeypatch.setattr(replayed, "REPLAY_CHECKS", (*replayed.REPLAY_CHECKS, check_replay))


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(("tokens", "outcome", "status"), [(10, "pass", "valid"), (12, "fail", "invalid")])
def test_a_check_that_was_added_speaks_in_verdicts(tokens: int, outcome: str, status: str) -> None:
    z = logits(tokens, 3)
    ids = draw(z, PLAIN, 7)
    got = judged(artifact(record(z, ids, 20)), builders.replayed(record(z, ids, 40)), policy(), NOW)
    assert (finding(got, "T1").outcome, finding(got, "T1").blind) == (outcome, "words")
    assert got.status == status, got.reasons


@pytest.mark.usefixtures("toy")
def test_a_check_that_was_added_stands_in_the_documents() -> None:
    page = MAKE_DOCS.pages()["../verification.md"]
    assert "| T1 toy | whether there are ten tokens | these tests | words | `checks/toy.py` |" in page


def test_a_check_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="'T1'"):
        passed(TOY, "ten tokens")


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda c: c.id)
def test_every_row_is_filled_in_and_its_file_makes_the_finding(check: Check) -> None:
    assert CHECKS[check.id] is check
    assert all((check.name, check.sees, check.source, check.blind or check.blind_also))
    constant = next(name for name, value in vars(check_table).items() if value is check)
    assert constant in (ROOM / check.file).read_text(encoding="utf-8")


@pytest.mark.parametrize(("story", "least"), [("Add a check", 10), ("Add a distance", 4)])
def test_the_files_and_names_of_the_stories_exist(story: str, least: int) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    quoted = re.findall(r"`([^`]+)`", text[text.index(f"## {story}\n") :].split("\n## ")[0])
    paths = [ROOT / name for name in quoted if "/" in name]
    assert len(paths) >= least
    missing = [path for path in paths if not (path.parent if "NAME" in path.name else path).exists()]
    assert missing == []
    sources = "".join(p.read_text(encoding="utf-8") for p in ROOM.rglob("*.py"))
    assert [name for name in quoted if name.isidentifier() and not re.search(rf"\b{name}\b", sources)] == []


def test_ids_are_written_in_the_table_alone() -> None:
    """But those that are words of other meanings too."""
    ids = set(CHECKS) - {"seed", "policy", "claim", "request", "prompt"}
    copies = {
        f"{path.relative_to(ROOM)}:{node.lineno}"
        for path in ROOM.rglob("*.py")
        if path.name != "check_table.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in ids
    }
    assert copies == set()
