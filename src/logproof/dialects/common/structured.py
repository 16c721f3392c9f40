"""Structured output on our side: constraints checked before I/O, texts parsed and validated after.

The server's word is not taken: a reply that was cut, is no JSON, or does not fit the caller's schema, regex
or choices is an output-contract error, whatever its status.
"""

from __future__ import annotations

import json
import re
from typing import Any

from logproof.dialects.ledger import Ledger
from logproof.errors import OutputContractError, clip
from logproof.ir.request import STRUCTURED, Output
from logproof.ir.response import Finish, Meaning

_FREE = Output()
_BLANKS = re.compile(r"\s{32,}")


def constrains(output: Output) -> bool:
    """Whether the request puts a grammar over the sampled tokens."""
    return output != _FREE and any(getattr(output, name) is not None for name in STRUCTURED)


def sampled_meaning(output: Output, otherwise: Meaning) -> Meaning:
    """Meaning of sampled logprobs: under a grammar they are masked and renormalised (vLLM, SGLang)."""
    return "constrained" if constrains(output) else otherwise


def refuse_broken(output: Output, ledger: Ledger) -> None:
    """Refuse a schema or regex that is itself invalid, before a server meets it."""
    if output.json_schema is not None:
        fault = schema_fault(output.json_schema)
        if fault:
            ledger.refuse("output.json_schema", f"invalid JSON Schema: {fault}")
    if output.regex is not None:
        try:
            re.compile(output.regex)
        except re.error as error:
            ledger.refuse("output.regex", f"invalid regular expression: {error}")


def schema_fault(schema: dict[str, object]) -> str | None:
    """What is wrong with a JSON Schema, or None."""
    # Loaded here and below, for it takes a tenth of a command's start, and few requests have a schema.
    import jsonschema
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except jsonschema.SchemaError as error:
        return clip(error.message, 200)
    return None


def parse(output: Output, text: str, finish: Finish, path: str) -> object:
    """The value of a structured text, or None where no structure was asked.

    JSON kinds give the decoded value; choice, regex and grammar give the text itself (a grammar is not
    checked here). Raises OutputContractError naming `path`.
    """
    if output.json_schema is not None or output.json_object is not None:
        value = _json(text, finish, path)
        _conform(output, value, path)
        return value
    if output.choice is not None and text not in output.choice:
        raise OutputContractError(f"{clip(text, 80)!r} is none of the choices{_cut(finish)}", path=path)
    if output.regex is not None and re.fullmatch(output.regex, text) is None:
        raise OutputContractError(f"{clip(text, 80)!r} does not match the regex{_cut(finish)}", path=path)
    if output.grammar is not None and finish.reason == "length":
        raise OutputContractError(f"the grammar's text is unfinished{_cut(finish)}", path=path)
    return text if constrains(output) else None


def _json(text: str, finish: Finish, path: str) -> object:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        blanks = ", with long runs of white space" if _BLANKS.search(text) else ""
        raise OutputContractError(
            f"not valid JSON{_cut(finish)}{blanks}: {clip(str(error), 120)}", path=path, hint=_hint(finish)
        ) from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON value")


def _conform(output: Output, value: object, path: str) -> None:
    if output.json_object is not None and not isinstance(value, dict):
        raise OutputContractError("the JSON value is no object", path=path)
    if output.json_schema is None:
        return
    import jsonschema
    from jsonschema.validators import validator_for

    validator: Any = validator_for(output.json_schema, default=jsonschema.Draft202012Validator)(output.json_schema)
    error = next(iter(validator.iter_errors(value)), None)
    if error is not None:
        raise OutputContractError(f"off the schema at {error.json_path}: {clip(error.message, 160)}", path=path)


def _cut(finish: Finish) -> str:
    if finish.reason == "length":
        return " (truncated at max_tokens)"
    return f" (ended by stop string {finish.matched!r})" if isinstance(finish.matched, str) else ""


def _hint(finish: Finish) -> str | None:
    return "raise sampling.max_tokens" if finish.reason == "length" else None
