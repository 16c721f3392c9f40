"""The attack bench's pure parts: forgers leave nothing but the lie, counts count, tables say what was counted."""

from __future__ import annotations

import arrays
import forge
import measure
import msgspec
import numpy as np
import page
import plan
import pytest
import rivals
import rows
import texts

from logproof.verify.artifact.columns import Columns
from logproof.verify.checks import structure
from logproof.verify.judge import judge
from logproof.verify.policy import Policy
from logproof.verify.stats import gonka
from logproof.verify.stats.distance import max_abs, pair
from logproof.verify.stats.sampler import Sampler
from verify import builders

DRAWN = Sampler(1.0, arrays.TOP_K)
LENGTH = 16


def world(name: str, seed: int, *, writer: float = 0.0, noise: float = 0.0) -> arrays.Record:
    """A record of the claimed model (or one whose logits differ by `writer`) and a replay with `noise` on it."""
    z = builders.logits(LENGTH, seed)
    own = builders.noisy(z, seed + 1, writer)
    ids = builders.draw(own, DRAWN, seed)
    replay = builders.record(builders.noisy(z, seed + 2, noise), ids, 64)
    return arrays.Record(name, (1, 2, 3), seed, builders.record(own, ids, arrays.K), replay)


def honest(count: int) -> list[arrays.Record]:
    return [world(f"h{i}", 100 * i, noise=0.02) for i in range(count)]


@pytest.fixture(scope="module")
def calibrated() -> measure.Calibration:
    some = honest(20)
    return measure.calibrated(some, measure.pairs(some), 0, 2)


def failed(record: arrays.Record, policy: Policy | None = None, made: measure.Forge = arrays.artifact) -> set[str]:
    verdict = judge(made(record), arrays.replayed(record), policy, measure.NOW)
    return {f.test for f in verdict.findings if f.outcome == "fail"}


def test_prompts_are_distinct_and_a_quarter_has_notes():
    asked = [texts.question(i) for i in range(texts.MOST)]
    assert len(set(asked)) == texts.MOST
    assert sum(bool(notes) for notes, _ in asked) == texts.MOST // 4
    with pytest.raises(ValueError, match="1440"):
        texts.question(texts.MOST)


def test_no_prompt_is_used_by_two_groups_or_by_an_attack():
    groups = [range(first, first + count) for first, count, *_ in plan.GROUPS]
    used = [i for numbers in (*groups, range(plan.FIRST_ATTACK, plan.END_ATTACK)) for i in numbers]
    assert len(used) == len(set(used))
    assert max(used) < texts.MOST


def test_cut_leaves_the_end_of_the_notes():
    notes, _ = texts.question(0)
    assert notes.endswith(texts.cut(notes))
    assert len(texts.cut(notes)) < 0.75 * len(notes)


def test_prompt_is_in_the_models_chat_format():
    assert texts.chat("S", "", "Q") == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    )


def test_rows_of_the_worker_become_columns():
    ids, values = np.array([[7, 3, 9]], np.int32), np.array([[-2.0, -0.5, -1.5]], np.float32)
    made = arrays.rows(ids, values)
    assert (made.sampled_ids.tolist(), made.sampled_logprobs.tolist()) == ([7], [-2.0])
    assert (made.ids.tolist(), made.logprobs.tolist()) == ([[3, 9]], [[-0.5, -1.5]])


def test_a_replay_of_other_tokens_is_refused():
    a, b = world("a", 1), world("b", 2)
    with pytest.raises(ValueError, match="a: the replay"):
        arrays.records(["a"], [a.prompt], [1], [a.own], [b.replay])


def test_honest_artifact_is_sound_and_draws_itself():
    record = world("a", 3)
    assert structure.faults(arrays.artifact(record)) == []
    assert failed(record) == set()
    assert forge.mismatches(record) == 0


def test_prefilled_record_agrees_with_the_replay_and_contradicts_its_seed():
    record = forge.scored_honestly(world("a", 4, writer=1.0))
    assert max_abs(pair(record.own, record.replay)) == 0.0
    assert failed(record) == {"S4"}


def test_edits_are_listed_tokens_one_in_sixteen():
    own = world("a", 5).own
    ids = forge.edited_ids(own)
    changed = np.flatnonzero(ids != own.sampled_ids)
    assert changed.tolist() == [8]
    made = forge.with_tokens(own, ids)
    assert made.sampled_logprobs[8] == own.logprobs[8][own.ids[8] == ids[8]][0]
    assert np.array_equal(np.delete(made.sampled_logprobs, 8), np.delete(own.sampled_logprobs, 8))


@pytest.mark.parametrize("seed", range(5))
def test_copied_logprobs_make_a_sound_artifact_of_the_wrong_distribution(seed):
    a, b = world("a", 10 * seed), world("b", 10 * seed + 5)
    made = forge.copied(a, b)
    assert structure.faults(arrays.artifact(made)) == []
    assert np.array_equal(made.own.ids, b.own.ids)
    assert np.array_equal(made.own.sampled_ids, a.own.sampled_ids)
    assert max_abs(pair(made.own, made.replay)) > 1.0


def test_grinding_keeps_the_try_with_fewest_contradictions():
    good, bad = world("good", 6), forge.scored_honestly(world("bad", 7, writer=2.0))
    assert forge.mismatches(bad) > 0
    assert forge.best_of([bad, good], LENGTH) is good


def test_only_replies_that_end_of_text_would_have_ended_are_lengthened():
    honest = world("a", 12)
    z = builders.logits(LENGTH, 12)
    z[5, arrays.EOS] = 30.0  # it would be drawn there, and another token is
    ids = honest.own.sampled_ids.tolist()
    suppressed = msgspec.structs.replace(honest, own=builders.record(z, ids, arrays.K))
    assert not forge.lengthened(honest)
    assert forge.lengthened(suppressed)
    assert not forge.lengthened(suppressed.head(5))


def test_inflated_usage_is_malformed():
    assert failed(world("a", 8), made=rows.inflated) == {"S0a"}


def test_own_seed_is_said_to_be_the_executors():
    assert rows.own_seed(world("a", 8)).sampling.seed.origin == "executor"
    assert rows.endless(world("a", 8)).sampling.ignore_eos is False


def test_rows_whose_sets_are_missing_are_left_out():
    unseen = [world("h0", 1), world("h1", 2)]
    found = [r.words for r in rows.rows({"int8": unseen, "edited": unseen[:1]}, unseen)]
    assert found == [
        "int8 weights",
        "pre-fill by int8, honest logprobs",
        "one token in 16 edited, logprobs kept",
        "one token in 16 edited, scored again",
        "logprobs copied from another reply",
        "usage inflated by a tenth",
    ]
    assert not [r for r in rows.rows({"endless": unseen}, unseen) if "lengthen" in r.words]


def test_ground_rows_need_every_try():
    some = [world("a", 1)]
    sets = {"int8": some, **{f"int8-{i}": some for i in (1, 2, 3)}}
    ground = [r for r in rows.rows(sets, some) if "seeds" in r.words]
    assert [r.lengths for r in ground] == [(16,), (64,)]


def test_every_honest_sequence_is_held_out_once(calibrated):
    names = [f"h{i}" for i in range(20)]
    rounds = [measure.split(names, fold, 4) for fold in range(4)]
    assert sorted(n for parts in rounds for n, part in parts.items() if part == "held") == sorted(names)
    assert all(set(parts.values()) == {"scale", "score", "held"} for parts in rounds)
    assert [len(calibrated.held), len(calibrated.scored)] == [10, 9]
    assert not {r.name for r in calibrated.held} & {r.name for r in calibrated.scored}


def test_false_positives_are_those_that_calibration_measured(calibrated):
    assert measure.held_out("x", calibrated.policy) == [measure.Count("x", "logproof", n, 0, 10) for n in (4, 16)]


def test_verdicts_are_counted_with_the_tests_that_failed(calibrated):
    liars = [forge.scored_honestly(world(f"a{i}", 1000 + i, writer=1.0)) for i in range(3)]
    (found,) = measure.ours("liars", liars, calibrated.policy, lengths=(LENGTH, 64))
    assert (found.hits, found.trials, found.tests["S4"]) == (3, 3, 3)
    (found,) = measure.ours("honest", calibrated.held, calibrated.policy, lengths=(LENGTH,))
    assert (found.hits, found.unsettled) == (0, found.trials)  # too few calibration scores for any p-value


def test_an_exact_pair_is_judged_by_equality():
    told = measure.exactness([world(f"e{i}", 100 * i) for i in range(6)])
    assert told == "exact: largest difference 0 nat in 96 tokens of 6 sequences; held out: 3 valid"
    assert measure.exactness(honest(6)).startswith("not exact")
    assert measure.exactness([]) == "not measured"


def test_peers_are_judged_by_honest_scores_and_own_bounds(monkeypatch):
    monkeypatch.setattr(measure, "SCORES", {"gonka": lambda r: float(r.name)})
    one = world("0", 1)
    known = [msgspec.structs.replace(one, name=str(i / 100_000)) for i in range(200)]
    table = measure.scores(known, (LENGTH,))
    liars = measure.scores([msgspec.structs.replace(one, name=n) for n in ("0.02", "0.04", "0.0")], (LENGTH,))
    found = measure.peers("x", liars, ["0.02", "0.04", "0.0"], table, [*(r.name for r in known), "shorter"])
    assert {c.detector: (c.hits, c.trials) for c in found} == {
        "gonka": (2, 3),
        "gonka, own bound 0.0351": (1, 3),
        "gonka, own bound 0.01": (2, 3),
    }
    assert measure.peers("x", liars, ["other"], table, []) == []


def test_counts_of_one_row_are_added():
    parts = [measure.Count("r", "d", 16, 1, 4, 1, {"S1": 1}), measure.Count("r", "d", 16, 2, 4, 0, {"S1": 1, "S4": 2})]
    assert measure.added(parts) == [measure.Count("r", "d", 16, 3, 8, 1, {"S1": 2, "S4": 2})]


def test_difr_is_nothing_for_the_seeds_own_tokens_and_capped_for_impossible_ones():
    record = world("a", 9)
    assert rivals.difr(record) < 1e-6
    odd = Columns(record.replay.ids[:, 60], record.replay.logprobs[:, 60], record.replay.ids, record.replay.logprobs)
    assert rivals.difr(msgspec.structs.replace(record, replay=odd)) == rivals.CAP


def test_gonka_reads_five_entries():
    record = world("a", 11, writer=0.3)
    assert rivals.gonka_own(record) == gonka.go(record.own.narrow(5), record.replay.narrow(5))
    assert rivals.gonka_wide(record) == gonka.go(record.own, record.replay.narrow(20))


def results() -> page.Results:
    counts = (
        measure.Count("honest", "logproof", 16, 1, 100, 0, {"S1": 1}),
        measure.Count("int8 weights", "logproof", 16, 24, 24, 0, {"S1": 24}),
        measure.Count("int8 weights", "gonka", 16, 12, 24),
    )
    return page.Results(honest=100, tokens=1600, counts=counts, facts={"engine": "some"})


def test_tables_state_rates_with_intervals():
    text = page.tables(results())
    assert "| honest | 16 | 100 | 1.0 (0.0-5.4)" in " ".join(text.split())
    assert "| int8 weights | 16 | 24 | 100 (86-100) | | | 50 (29-71) |" in " ".join(text.split())
    assert "S1 24 |" in text


def test_page_is_filled_between_its_marks(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    page.update(path, results())
    text = path.read_text()
    assert "old" not in text
    assert text.startswith("before\n")
    assert text.endswith(f"{page.END}\nafter\n")
    path.write_text("no marks")
    with pytest.raises(ValueError, match="marks"):
        page.update(path, results())
