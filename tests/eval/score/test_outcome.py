from __future__ import annotations

import math

import numpy as np
import pytest

from logproof.errors import BadReply
from logproof.eval.plan.method import TaskMethod, TaskPlan
from logproof.eval.score.outcome import Contexts, score
from logproof.eval.score.prompt_beginning import check_bos
from logproof.eval.tasks.task import ClpItem, GenItem, PplItem, Settings
from logproof.ir.response import Choice, Finish, Labels, Response, Tokens, Usage

PPL = PplItem("Q:", ("a", "b"), (" a", " b"), 1)
PLAN = TaskPlan("m", TaskMethod("prompt_scores", {}), Settings())
DONE = Finish("stop", "stop")


def prompt(*values: float, ids: tuple[int, ...] | None = None) -> Response:
    column = np.array([math.nan, *values])
    names = np.array(ids) if ids is not None else None
    texts = ("Q:", *(" a" for _ in values))
    return Response((Choice(0, "", DONE),), Usage(), prompt=Tokens(column, "raw", names, texts=texts))


def test_the_outcome_of_options() -> None:
    replies = {"option 0": prompt(-2.0, ids=(1, 2)), "option 1": prompt(-1.0, ids=(1, 3))}
    outcome = score(PPL, PLAN, replies, Contexts((1,)))
    assert outcome.scores == {"acc": 1.0, "acc_char": 1.0, "acc_byte": 1.0, "acc_token": 1.0}
    assert outcome.output["sums"] == [-2.0, -1.0]
    assert outcome.flags == ()


def test_ties_are_flagged_and_an_impossible_option_is_null() -> None:
    tied = {"option 0": prompt(-1.0, ids=(1, 2)), "option 1": prompt(-1.0, ids=(1, 3))}
    outcome = score(PPL, PLAN, tied, Contexts((1,)))
    assert outcome.flags == ("tied", "all_equal")
    assert outcome.scores["acc"] == 0.0
    assert outcome.output["tied"] == ["acc", "acc_char", "acc_byte", "acc_token"]
    half = {"option 0": prompt(-math.inf, ids=(1, 2)), "option 1": prompt(-1.0, ids=(1, 3))}
    assert score(PPL, PLAN, half, Contexts((1,))).output["sums"] == [None, -1.0]


def test_zero_everywhere_is_flagged() -> None:
    replies = {"option 0": prompt(0.0, ids=(1, 2)), "option 1": prompt(0.0, ids=(1, 3))}
    assert "all_zero" in score(PPL, PLAN, replies, Contexts((1,))).flags


def test_a_reply_without_its_channel_is_refused() -> None:
    bare = Response((Choice(0, "", DONE),), Usage())
    with pytest.raises(BadReply, match="without its prompt scores"):
        score(PPL, PLAN, {"option 0": prompt(-1.0, ids=(1, 2)), "option 1": bare}, Contexts((1,)))


def test_labels_and_their_mass() -> None:
    labels = Labels(np.array([5, 6]), np.array([[math.log(0.25), math.log(0.5)]]), "raw")
    plan = TaskPlan("m", TaskMethod("label_scores", {}), Settings(), {" A": 5, " B": 6})
    outcome = score(
        ClpItem("Q:", (" A", " B"), 1),
        plan,
        {"labels": Response((Choice(0, "", DONE, labels=labels),), Usage())},
        Contexts(),
    )
    assert outcome.scores == {"acc": 1.0, "label_mass": pytest.approx(0.75)}
    assert outcome.output["label_ids"] == [5, 6]


def test_texts_keep_what_was_extracted_and_the_stops() -> None:
    reply = Response((Choice(0, "so 6\n#### 6", Finish("stop", "stop", "Question:")),), Usage(completion=4))
    outcome = score(GenItem("Q:", ("Question:",), 9, "6"), PLAN, {"text": reply}, Contexts())
    assert outcome.scores == {"exact_strict": 1.0, "exact_flexible": 1.0}
    assert outcome.output == {
        "extracted": {"strict": "6", "flexible": "6"},
        "finish": "stop",
        "matched": "Question:",
        "stop": ["Question:"],
        "tokens": 4,
    }


@pytest.mark.parametrize(
    ("finish", "usage", "parts", "lost"),
    [
        (Finish("stop", "stop"), Usage(completion=15), {}, True),
        (Finish("length", "length"), Usage(completion=2), {}, True),
        (Finish("stop", "stop", "X:"), Usage(completion=4), {}, True),
        (Finish("stop", "stop", "X:"), Usage(completion=3), {}, False),
        (Finish("stop", "stop"), Usage(completion=1), {}, False),
        (Finish("stop", "stop"), Usage(), {}, False),
        (Finish("length", "length"), Usage(completion=15), {"reasoning": "hm"}, False),
        (Finish("length", "length"), Usage(completion=15, reasoning=15), {}, False),
        (Finish("stop", "stop"), Usage(completion=15), {"refusal": "No"}, False),
    ],
)
def test_a_text_that_the_server_lost_is_no_empty_answer(
    finish: Finish, usage: Usage, parts: dict[str, str], lost: bool
) -> None:
    reply = Response((Choice(0, "", finish, **parts),), usage)
    item = GenItem("Q:", (), 9, "6")
    if lost:
        with pytest.raises(BadReply, match="tokens were sampled, yet the reply holds no text"):
            score(item, PLAN, {"text": reply}, Contexts())
        return
    assert "empty" in score(item, PLAN, {"text": reply}, Contexts()).flags


@pytest.mark.parametrize(
    ("ids", "doubled"), [((1, 1, 88), True), ((1, 88, 88), False), ((1,), False), ((), False), (None, False)]
)
def test_a_beginning_that_stands_twice_is_flagged(ids: tuple[int, ...] | None, doubled: bool) -> None:
    reply = Response((Choice(0, "#### 6", DONE),), Usage(), prompt_ids=np.array(ids) if ids is not None else None)
    outcome = score(GenItem("Q:", (), 9, "6"), PLAN, {"text": reply}, Contexts())
    assert outcome.flags == (("doubled_start",) if doubled else ())


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ((1, 1, 88), "begins with id 1 twice"),
        ((88, 1), "begins with id 88, not with 1"),
        ((), "id None"),
        (None, "no prompt ids"),
    ],
)
def test_a_declared_beginning_is_held(ids: tuple[int, ...] | None, said: str) -> None:
    with pytest.raises(BadReply, match=said):
        check_bos(1, "text", Response((), Usage(), prompt_ids=np.array(ids) if ids is not None else None))


def test_a_declared_beginning_is_checked_in_every_reply() -> None:
    plan = TaskPlan("m", TaskMethod("text", {}), Settings(bos=1))
    reply = Response((Choice(0, "#### 6", DONE),), Usage(), prompt_ids=np.array([1, 88]))
    item = GenItem("Q:", (), 9, "6")
    assert score(item, plan, {"text": reply}, Contexts()).scores["exact_strict"] == 1.0
    plan = TaskPlan("m", TaskMethod("text", {}), Settings(bos=2))
    with pytest.raises(BadReply, match="not with 2"):
        score(item, plan, {"text": reply}, Contexts())
