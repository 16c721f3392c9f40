from __future__ import annotations

import math

import numpy as np
import pytest

from logproof.errors import BadReply, MissingChannel
from logproof.eval.score.labels import from_labels, from_top, label_mass
from logproof.ir.response import Choice, Finish, Labels, Meaning, Tokens, TopK

NAMES = (" A", " B")
DONE = Finish("length", "length")


def labelled(ids: list[int], values: list[float], meaning: Meaning = "raw") -> Choice:
    column = np.array([values]) if values else np.empty((0, len(ids)))
    return Choice(0, "", DONE, labels=Labels(np.array(ids), column, meaning))


def listed(entries: dict[str, float], ids: list[int] | None = None, meaning: Meaning = "raw") -> Choice:
    top = TopK(
        offsets=np.array([0, len(entries)]),
        logprobs=np.array(list(entries.values())),
        ids=np.array(ids) if ids is not None else None,
        texts=tuple(entries) if ids is None else None,
    )
    return Choice(0, " A", DONE, tokens=Tokens(np.array([-1.0]), meaning, top=top))


def test_exact_scores_come_in_label_order() -> None:
    assert from_labels(labelled([5, 6], [-1.0, -2.0]), [5, 6]) == [-1.0, -2.0]


@pytest.mark.parametrize(
    "choice", [Choice(0, "", DONE), labelled([5, 6], []), labelled([6, 5], [-1.0, -2.0]), labelled([5], [-1.0])]
)
def test_absent_or_other_labels_are_a_missing_channel(choice: Choice) -> None:
    with pytest.raises(MissingChannel):
        from_labels(choice, [5, 6])


def test_labels_by_id_and_by_text() -> None:
    assert from_top(listed({"x": -1.0, "y": -3.0, "z": -5.0}, [5, 9, 6]), NAMES, [5, 6]) == [-1.0, -5.0]
    assert from_top(listed({" B": -1.0, " A": -3.0}), NAMES, [5, 6]) == [-3.0, -1.0]
    assert from_top(listed({" B": -1.0, " A": -3.0}), NAMES, None) == [-3.0, -1.0]


def test_tokens_that_look_like_a_label_are_not_it() -> None:
    found = from_top(listed({" B": -0.007, "\tB": -11.9, "B": -6.0, " A": -5.0}), NAMES, None)
    assert found == [-5.0, -0.007]
    with pytest.raises(MissingChannel, match="options B are not"):
        from_top(listed({"\tB": -0.1, "B": -6.0, " A": -5.0}), NAMES, None)


def test_missing_labels_are_all_named_with_the_width() -> None:
    with pytest.raises(MissingChannel, match=r"options B, D are not in the top 2") as caught:
        from_top(listed({" A": -1.0, " C": -2.0}), (" A", " B", " C", " D"), None)
    assert "--top-k" in str(caught.value.hint)


def test_a_list_that_was_asked_and_is_absent() -> None:
    with pytest.raises(MissingChannel):
        from_top(Choice(0, "", DONE), NAMES, None)
    with pytest.raises(MissingChannel):
        from_top(Choice(0, "", DONE, tokens=Tokens(np.array([-1.0]), "raw")), NAMES, None)


def test_a_list_without_texts_or_ids_cannot_be_read() -> None:
    with pytest.raises(BadReply, match="by text"):
        from_top(listed({"x": -1.0}, [5]), NAMES, None)


def test_masked_scores_are_no_probabilities_of_the_model() -> None:
    with pytest.raises(BadReply, match="grammar"):
        from_labels(labelled([5, 6], [-1.0, -2.0], "constrained"), [5, 6])
    with pytest.raises(BadReply, match="grammar"):
        from_top(listed({" A": -1.0, " B": -2.0}, meaning="constrained"), NAMES, None)


def test_a_label_without_value_is_refused() -> None:
    with pytest.raises(BadReply, match="without a logprob"):
        from_labels(labelled([5, 6], [-1.0, math.nan]), [5, 6])


def test_the_mass_is_a_probability() -> None:
    assert label_mass([math.log(0.25), math.log(0.5), -math.inf]) == pytest.approx(0.75)
