"""Prompts of a file: what a capture asks for."""

from __future__ import annotations

from pathlib import Path

import msgspec

from logproof.errors import DatasetError, UsageError
from logproof.files import read_bounded
from logproof.ir.message import Role, text_message
from logproof.ir.request import STRUCTURED, Input, Output

MAX_PROMPTS_BYTES = 64 << 20


class Prompt(msgspec.Struct, frozen=True):
    """One prompt. id: unique in its file; seeds and pairing follow it. Exactly one input form is set.

    output: what constrains its completion, if anything; the logprobs are then those under that grammar.
    where: file and line that it was read from, for messages.
    """

    id: str
    input: Input
    output: Output = Output()
    where: str | None = None


class _PromptTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Role
    content: str


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str | None = None
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[_PromptTurn, ...] | None = None
    output: dict[str, object] | None = None


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file. Raises as `prompts`, and for a file that cannot be read."""
    return prompts(read_bounded(path, MAX_PROMPTS_BYTES), str(path))


def prompts(data: bytes, name: str = "prompts") -> list[Prompt]:
    """Prompts of a JSON-lines file: {"text"}, {"token_ids"} or {"messages"} a line, with an optional "id".

    An optional "output" constrains the completion: one of json_schema, json_object, regex, choice, grammar.
    Raises DatasetError naming the line: malformed, several or no inputs or constraints, an id twice; UsageError for an
    empty or huge file.
    """
    if len(data) > MAX_PROMPTS_BYTES:
        raise UsageError(f"{name} has {len(data)} bytes; the limit is {MAX_PROMPTS_BYTES}")
    by_id: dict[str, Prompt] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        if line.strip():
            prompt = _prompt(line, f"{name}:{number}", number)
            if prompt.id in by_id:
                raise DatasetError(f"{name}:{number}: the id {prompt.id!r} occurs twice")
            by_id[prompt.id] = prompt
    if not by_id:
        raise UsageError(f"{name} holds no prompt", hint='one JSON object a line, such as {"text": "Once upon a time"}')
    return list(by_id.values())


def _prompt(line: bytes, where: str, number: int) -> Prompt:
    try:
        row = msgspec.json.decode(line, type=_Row)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{where}: {error}") from None
    inputs = [v for v in (row.text, row.token_ids, row.messages) if v]
    if len(inputs) != 1:
        raise DatasetError(f"{where}: exactly one of text, token_ids, messages, not empty, is needed")
    turns = tuple(text_message(t.role, t.content) for t in row.messages or ()) or None
    wanted = Input(text=row.text or None, token_ids=row.token_ids or None, messages=turns)
    return Prompt(row.id or str(number), wanted, _output(row.output, where), where)


def _output(leaves: dict[str, object] | None, where: str) -> Output:
    if leaves is None:
        return Output()
    if len(leaves) != 1 or not leaves.keys() <= set(STRUCTURED):
        raise DatasetError(f"{where}: output takes exactly one of {', '.join(STRUCTURED)}")
    try:
        return msgspec.convert(leaves, Output)
    except msgspec.ValidationError as error:
        raise DatasetError(f"{where}: output: {error}") from None
