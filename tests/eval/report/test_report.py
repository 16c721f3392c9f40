from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.toy import ToyEngine, connection, fault, stored
from logproof.errors import ResumeRefused, StoreError
from logproof.eval.report import report
from logproof.eval.report.report import Report, suspects, table_rows
from logproof.eval.report.totals import TaskTally, row_families, tally
from logproof.store.records import SampleRecord
from logproof.store.run_store import RunStore


def sample(index: int, repeat: int = 0, *, ok: bool = True, **fields: Any) -> SampleRecord:
    return SampleRecord(
        key=f"{index}/{repeat}",
        task="t",
        row_id=str(index),
        index=index,
        repeat=repeat,
        status="ok" if ok else "failed",
        **fields,
    )


def test_failed_samples_are_counted_apart_and_in_no_rate() -> None:
    rows = [sample(0, scores={"acc": 1.0}), sample(1, ok=False, reason="boom"), sample(2, scores={"acc": 0.0})]
    found = tally("t", rows)
    assert (found.rows, found.scored, found.failed, found.short) == (3, 2, 1, 1)
    assert (found.metrics["acc"].value, found.metrics["acc"].n) == (0.5, 2)
    assert found.failures == {"boom": 1}


def test_a_metric_that_nothing_scored_is_absent() -> None:
    assert tally("t", [sample(0, ok=False)]).metrics == {}
    assert tally("t", [sample(0, ok=False)]).failures == {"no reason given": 1}
    assert tally("t", [sample(0, scores={"acc": None})]).metrics == {}


def test_flags_and_crossings_are_summed() -> None:
    rows = [
        sample(0, scores={"acc": 1.0}, output={"flags": ["tied"], "span": {"crossings": 2}}),
        sample(1, scores={"acc": 1.0}, output={"flags": ["tied", "empty"], "span": None}),
    ]
    found = tally("t", rows)
    assert (found.flags, found.crossings) == ({"empty": 1, "tied": 2}, 2)


def test_draws_without_seeds_are_noted() -> None:
    methods = {"g": {"name": "text", "seeded": False}, "h": {"name": "text", "seeded": True}, "i": None}
    assert report.unseeded(methods) == (
        "g: drawn without seeds, as this wire takes none: another run draws other texts",
    )
    assert report.unseeded(None) == ()


def test_reasons_beyond_a_few_are_lumped() -> None:
    found = tally("t", [sample(i, ok=False, reason=f"r{i}" * 200) for i in range(15)])
    assert found.failures["other reasons"] == 5
    assert max(map(len, found.failures)) <= 200


def draws(index: int, hits: Sequence[bool], answers: Sequence[str | None]) -> list[SampleRecord]:
    return [
        sample(index, r, scores={"exact_strict": float(h)}, output={"extracted": {"strict": a}})
        for r, (h, a) in enumerate(zip(hits, answers, strict=True))
    ]


def test_repeats_count_rows_and_give_families() -> None:
    rows = draws(0, [True, True, False, False], ["7", "7.0", "3", None])
    rows += [*draws(1, [False, False, False], ["1", "2", "3"]), sample(1, 3, ok=False)]
    found = tally("t", rows, draws=4)
    assert (found.rows, found.scored, found.failed, found.short) == (2, 7, 1, 1)
    assert found.metrics["exact_strict"].value == pytest.approx(0.25)
    assert found.families["exact_strict pass@2"].value == pytest.approx((5 / 6 + 0) / 2)
    assert found.families["exact_strict pass@4"].n == 1
    assert found.families["exact_strict avg@4"].value == 0.5
    assert found.families["exact_strict maj@4"].value == 1.0


def test_families_leave_out_what_a_row_is_too_short_for() -> None:
    found = row_families([1.0, 0.0], None, 4)
    assert set(found) == {"pass@1", "pass^1", "pass@2", "pass^2"}
    assert row_families([1.0], ["7"], 1)["maj@1"] == 1.0


def test_metrics_without_answers_have_no_vote() -> None:
    rows = [sample(0, r, scores={"exact_strict": 1.0}) for r in range(2)]
    assert not any("maj" in name for name in tally("t", rows, draws=2).families)
    text = draws(0, [True, True], ["seven", "seven"])
    assert tally("t", text, draws=2).families["exact_strict maj@2"].value == 1.0


def counted(**fields: Any) -> TaskTally:
    base = {"rows": 10, "scored": 10, "failed": 0, "draws": 1, "short": 0, "metrics": {}, "flags": {}}
    return TaskTally(task="t", crossings=0, failures={}, **{**base, **fields})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"all_equal": 4}, "score alike in 4 of 10"),
        ({"all_zero": 4}, "every score is zero in 4"),
        ({"doubled_start": 4}, "begins with one token twice (is a mark of the beginning added twice?) in 4"),
        ({"empty": 3}, "text is empty in 3"),
        ({"truncated": 6}, "text is cut in 6"),
        ({"all_equal": 3, "empty": 2, "truncated": 5, "tied": 10}, None),
    ],
)
def test_marks_begin_where_they_say(flags: dict[str, int], said: str | None) -> None:
    marks = suspects((counted(flags=flags),))
    assert (len(marks) == 1 and said in marks[0]) if said else marks == []


def reported(*tallies: TaskTally, suspect: tuple[str, ...] = ()) -> Report:
    return Report("m", "d", (), {}, {}, tallies, suspect)


def test_status_and_exit_codes() -> None:
    assert (reported(counted()).status, reported(counted()).exit_code) == ("ok", 0)
    assert (reported(counted(failed=1)).status, reported(counted(failed=1)).exit_code) == ("failures", 1)
    assert (reported(counted(scored=0)).status, reported(counted(scored=0)).exit_code) == ("empty", 1)
    assert (reported(counted(), suspect=("x",)).status, reported(counted(), suspect=("x",)).exit_code) == ("suspect", 2)


def test_a_run_is_reported_from_its_store_alone(tmp_path: Path) -> None:
    conn = connection(ToyEngine())
    finished = stored(tmp_path / "run", conn, "arc_easy_ppl", "gsm8k_gen", limit="6", shots=1)
    with RunStore.read(tmp_path / "run") as store:
        again = report.build(store)
    assert again == finished.report
    body = json.loads((tmp_path / "run" / "report.json").read_text())
    assert body["status"] == "ok"
    assert {t["task"] for t in body["tasks"]} == {"arc_easy_ppl", "gsm8k_gen"}
    assert body["settings"]["gsm8k_gen"]["limit"] == "6"
    arc = next(t for t in again.tasks if t.task == "arc_easy_ppl")
    assert set(arc.metrics) == {"acc", "acc_char", "acc_byte", "acc_token"}
    assert all(rate.n == 6 for rate in arc.metrics.values())
    lines = table_rows(again)
    assert len(lines) == 6
    assert any("±" in line[2] for line in lines)


def test_a_task_without_rates_still_has_its_line() -> None:
    assert table_rows(reported(counted(scored=0, failed=3))) == [("t", "none", "", "0", "3", "")]


def test_repeats_reach_the_report(tmp_path: Path) -> None:
    conn = connection(ToyEngine())
    made = stored(tmp_path / "run", conn, "gsm8k_gen", "mmlu_clp", limit="2", repeats=2, temperature=0.5).report
    by_name = {t.task: t for t in made.tasks}
    assert (by_name["gsm8k_gen"].draws, by_name["mmlu_clp"].draws) == (2, 1)
    assert by_name["gsm8k_gen"].families["exact_strict pass@2"].n == 2


def test_several_models_in_one_run_are_suspect(tmp_path: Path) -> None:
    engine = ToyEngine()
    names = iter(["toy", "other"] * 8)
    engine.behave = lambda body: {**engine.answer(body), "model": next(names)}
    made = stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="2").report
    assert made.status == "suspect"
    assert "several models: other (1 calls), toy (1 calls)" in made.suspect[0]


def test_constant_scores_are_suspect(tmp_path: Path) -> None:
    engine = ToyEngine()

    def flat(body: dict[str, Any]) -> dict[str, Any]:
        reply = engine.answer(body)
        for position in reply["choices"][0]["prompt_logprobs"][1:]:
            for entry in position.values():
                entry["logprob"] = 0.0
        return reply

    engine.behave = flat
    made = stored(tmp_path / "run", connection(engine), "arc_easy_ppl", limit="5").report
    assert made.exit_code == 2
    assert len(made.suspect) == 2


def test_resume_sends_only_what_is_missing_or_failed(tmp_path: Path) -> None:
    engine = ToyEngine(lambda body: fault() if "12 trays" in body["prompt"] else None)
    first = stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="6", shots=0)
    assert (first.ended.ran, first.report.tasks[0].failed) == (6, 1)
    engine.behave = lambda body: None
    engine.seen.clear()
    again = stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="6", shots=0, resume=True)
    assert (again.ended.skipped, again.ended.ran, len(engine.seen)) == (5, 1, 1)
    assert again.report.tasks[0].failed == 0
    engine.seen.clear()
    assert stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="6", shots=0, resume=True).ended.ran == 0
    assert engine.seen == []
    clean = stored(tmp_path / "clean", connection(ToyEngine()), "gsm8k_gen", limit="6", shots=0)
    assert clean.report.tasks == again.report.tasks


def test_another_run_never_overwrites_or_mixes(tmp_path: Path) -> None:
    conn = connection(ToyEngine())
    stored(tmp_path / "run", conn, "gsm8k_gen", limit="1")
    with pytest.raises(StoreError, match="holds a run already"):
        stored(tmp_path / "run", conn, "gsm8k_gen", limit="1")
    with pytest.raises(ResumeRefused, match=r"settings\.gsm8k_gen\.temperature"):
        stored(tmp_path / "run", conn, "gsm8k_gen", limit="1", temperature=0.7, resume=True)


def test_replies_that_name_another_model_are_suspect(tmp_path: Path) -> None:
    engine = ToyEngine()
    engine.behave = lambda body: {**engine.answer(body), "model": "other"}
    made = stored(tmp_path / "run", connection(engine), "gsm8k_gen", limit="2").report
    assert made.status == "suspect"
    assert "toy was asked, the replies name other" in made.suspect[0]
