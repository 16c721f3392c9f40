"""The assistant turn that a lifted choice makes."""

from __future__ import annotations

from logproof.ir.message import Message, Opaque, OpaquePart, ReasoningPart, TextPart, ToolCallPart
from logproof.ir.response import Choice, Finish
from logproof.ir.turn import to_message

STOP = Finish("stop", "stop")
CALL = ToolCallPart("call_1", "f", '{"a": 1}')
BLOB = Opaque("toy", "sealed", {"x": [1, None]})


def test_channels_make_a_turn_in_one_order() -> None:
    choice = Choice(0, "Yes", STOP, reasoning="hm", tool_calls=(CALL,), opaque=(BLOB,))
    assert to_message(choice) == Message("assistant", (OpaquePart(BLOB), ReasoningPart("hm"), TextPart("Yes"), CALL))


def test_a_lifted_turn_stands_as_it_is() -> None:
    turn = (TextPart(""), CALL, OpaquePart(BLOB), TextPart("b"))
    assert to_message(Choice(0, "b", STOP, tool_calls=(CALL,), opaque=(BLOB,), turn=turn)).content == turn


def test_a_choice_without_content_is_null() -> None:
    assert to_message(Choice(0, "", STOP)).content is None
    assert to_message(Choice(0, "", STOP, turn=())).content is None


def test_a_call_without_text_has_no_text_part() -> None:
    assert to_message(Choice(0, "", STOP, tool_calls=(CALL,))).content == (CALL,)
