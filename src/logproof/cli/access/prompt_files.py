"""Prompts, token ids and schemas as the access commands are given them: in arguments and in files."""

from __future__ import annotations

from pathlib import Path

import msgspec

from logproof.errors import UsageError
from logproof.files import read_bounded

MAX_PROMPT_BYTES = 16 * 1024 * 1024
"""Largest prompt or schema file that a command reads."""
MAX_ID_DIGITS = 20
"""Longest token id that is read; whether it is one of the vocabulary is asked later."""
SURROGATES = range(0xD800, 0xE000)
"""Code points that stand for bytes that are no UTF-8 in an argument."""


def read_prompts(texts: list[str] | None, file: Path | None) -> list[str]:
    """The prompts of the arguments, or the one in a file. Raises UsageError for both, neither, or what is no text."""
    if file is not None and not texts:
        return [_read_text(file)]
    if not texts or file is not None:
        raise UsageError("give a prompt, or --file" if not texts else "give a prompt or --file, not both")
    if any(ord(c) in SURROGATES for text in texts for c in text):
        raise UsageError("the prompt is not valid UTF-8", hint="give it in a file with --file")
    return texts


def read_schema(file: Path) -> dict[str, object]:
    """A JSON Schema out of a file. Raises UsageError for a file that holds no JSON object, InputError for none."""
    try:
        return msgspec.json.decode(_read_text(file), type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file} holds no JSON object: {error}") from None


def parse_ids(text: str) -> tuple[int, ...]:
    """Token ids that commas separate. Raises UsageError."""
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isascii() and p.isdecimal() and len(p) <= MAX_ID_DIGITS for p in parts):
        raise UsageError("--ids takes token ids separated by commas")
    return tuple(int(p) for p in parts)


def _read_text(file: Path) -> str:
    try:
        return read_bounded(file, MAX_PROMPT_BYTES).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None
