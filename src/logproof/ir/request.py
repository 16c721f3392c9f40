"""Request: all that a caller can ask of an engine, in groups of leaves.

Every leaf is None until the caller sets it; a leaf that is set, even to a wire's default, is active and
must be decided by the dialect (dialects/ledger.py). Tuples and dicts are not to be changed after use.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Sequence
from typing import Literal

import msgspec

from logproof.errors import InvalidRequest
from logproof.ir.message import Message

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
MODES = ("raw", "processed")
LogprobsMode = Literal["raw", "processed"]


class Input(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model reads: exactly one of text, token_ids, messages.

    suffix: text behind the gap, for fill-in-the-middle; only beside text.
    """

    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    messages: tuple[Message, ...] | None = None
    suffix: str | None = None


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How tokens are drawn. stop () asks for no stop string and is distinct from None.

    logit_bias: token id -> value added to its logit.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    n: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] | None = None


class Scoring(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which logprobs come back. A width of 0 is the token itself, k adds its k best rivals.

    prompt: width at each prompt position. sampled: width at each sampled position.
    label_ids: token ids scored exactly at each sampled position.
    top_by: how the sampled rivals are keyed; `text` accepts a wire's text-keyed map where ids exist too.
    """

    prompt: int | None = None
    sampled: int | None = None
    label_ids: tuple[int, ...] | None = None
    top_by: Literal["id", "text"] | None = None


class Replay(msgspec.Struct, frozen=True, omit_defaults=True):
    """Enforced replay: the ids that the engine must emit, and the meaning of the logprobs it reports."""

    token_ids: tuple[int, ...] | None = None
    logprobs_mode: LogprobsMode | None = None


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """Structured output: at most one of json_schema, json_object, regex, choice, grammar.

    json_schema: a JSON Schema. json_object: any JSON object. grammar: EBNF in the engine's dialect.
    name: label of the schema. strict: whether the server must hold the schema exactly.
    """

    json_schema: dict[str, object] | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    name: str | None = None
    strict: bool | None = None


class Reasoning(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reasoning control. budget_tokens: most reasoning tokens. summary: how much of it is shown."""

    effort: Effort | None = None
    budget_tokens: int | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


class Function(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that the model may call. parameters: JSON Schema of its arguments object."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class Hosted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the provider runs. kind: the provider's type name; config: its other fields."""

    kind: str
    config: dict[str, object] = {}


class Tools(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tools. choice: auto, none, required, or the name of one function given here as `function:NAME`."""

    functions: tuple[Function, ...] | None = None
    hosted: tuple[Hosted, ...] | None = None
    choice: str | None = None
    parallel: bool | None = None


class Session(msgspec.Struct, frozen=True, omit_defaults=True):
    """Server-side state. previous_response_id: the turn to continue. store: keep this turn for later."""

    previous_response_id: str | None = None
    store: bool | None = None


class Schedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the reply travels. stream: as events; the lifted response is the same either way."""

    stream: bool | None = None


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One request. model: served name. options: fields of the wire outside the IR, by their wire name."""

    model: str
    input: Input
    sampling: Sampling = Sampling()
    scoring: Scoring = Scoring()
    replay: Replay = Replay()
    output: Output = Output()
    reasoning: Reasoning = Reasoning()
    tools: Tools = Tools()
    session: Session = Session()
    schedule: Schedule = Schedule()
    options: dict[str, object] = {}

    @property
    def choices(self) -> int:
        """Number of choices asked for."""
        return self.sampling.n or 1


STRUCTURED = ("json_schema", "json_object", "regex", "choice", "grammar")
"""Leaves of Output that constrain the text; at most one is set."""


def validate(request: Request) -> None:
    """Check types and invariants that hold on every wire.

    Raises InvalidRequest with the first fault: a wrong type (a bool is no int), not exactly one input, an
    empty input, a negative width or id, a non-finite number, more than one structured output.
    """
    try:
        msgspec.convert(msgspec.to_builtins(request, str_keys=False, builtin_types=_NOT_JSON), Request)
    except (msgspec.ValidationError, TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"request: {error}") from None
    for check in (_check_free, _check_input, _check_sampling, _check_scoring, _check_output):
        check(request)
    for leaf, ids in id_leaves(request).items():
        _check_ids(leaf, ids)


def id_leaves(request: Request) -> dict[str, Sequence[int]]:
    """{leaf: token ids that it holds} of the leaves that hold any, options named `...token_ids` among them.

    Engines have died of an id that they did not check. Raises InvalidRequest for such an option that is no list
    of integers.
    """
    held: dict[str, Sequence[int] | None] = {
        "input.token_ids": request.input.token_ids,
        "scoring.label_ids": request.scoring.label_ids,
        "replay.token_ids": request.replay.token_ids,
        "sampling.logit_bias": tuple(request.sampling.logit_bias or ()),
    }
    for name, value in request.options.items():
        if name.endswith("token_ids") and value is not None:
            held[f"options.{name}"] = _id_list(f"options.{name}", value)
    return {leaf: ids for leaf, ids in held.items() if ids}


def _id_list(leaf: str, value: object) -> Sequence[int]:
    if not isinstance(value, (list, tuple)) or any(type(t) is not int for t in value):
        raise InvalidRequest(f"{leaf} takes a list of token ids")
    return value


def _require(ok: bool, message: str) -> None:
    if not ok:
        raise InvalidRequest(message)


_NOT_JSON = (bytes, bytearray, datetime.datetime, datetime.date, datetime.time, uuid.UUID, decimal.Decimal)
"""Types that an encoder would turn into another text, such as base64, without a word."""


def _check_free(request: Request) -> None:
    """Free-form values go out as they are: what JSON cannot carry (NaN, bytes) would arrive as something else."""
    values: dict[str, object] = {"options": request.options, "output.json_schema": request.output.json_schema}
    if request.tools != Tools():
        values["tools"] = msgspec.to_builtins(request.tools, builtin_types=_NOT_JSON)
    for name, value in values.items():
        _require(_is_json(value), f"{name} holds a value that is no JSON")


def _is_json(value: object) -> bool:
    match value:
        case None | bool() | int() | str():
            return True
        case float():
            return math.isfinite(value)
        case list() | tuple():
            return all(_is_json(item) for item in value)
        case dict():
            return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
        case _:
            return False


def _check_input(request: Request) -> None:
    kinds = [k for k in ("text", "token_ids", "messages") if getattr(request.input, k) is not None]
    _require(len(kinds) == 1, f"input: exactly one of text, token_ids, messages, got {kinds or 'none'}")
    _require(bool(getattr(request.input, kinds[0])), f"input.{kinds[0]} is empty: there is nothing to condition on")
    _require(request.input.suffix is None or kinds == ["text"], "input.suffix goes only with input.text")
    _require(request.replay.token_ids != (), "replay.token_ids is empty: there is nothing to replay")


def _check_ids(leaf: str, ids: Sequence[int]) -> None:
    if min(ids) >= 0 and max(ids) < 2**31:
        return
    bad = next(i for i, t in enumerate(ids) if t < 0 or t >= 2**31)
    raise InvalidRequest(f"{leaf}[{bad}] is no token id: {ids[bad]}")


def _check_sampling(request: Request) -> None:
    s = request.sampling
    for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty"):
        value = getattr(s, name)
        _require(value is None or math.isfinite(value), f"sampling.{name} is not finite")
    _require(s.temperature is None or s.temperature >= 0, "sampling.temperature is negative")
    _require(s.n is None or s.n >= 1, "sampling.n must be at least 1")
    _require(s.max_tokens is None or s.max_tokens >= 0, "sampling.max_tokens is negative")
    _require("" not in (s.stop or ()), "sampling.stop holds an empty string")
    _require(all(math.isfinite(v) for v in (s.logit_bias or {}).values()), "sampling.logit_bias is not finite")


def _check_scoring(request: Request) -> None:
    for name in ("prompt", "sampled"):
        width = getattr(request.scoring, name)
        _require(width is None or width >= 0, f"scoring.{name} is a width and cannot be negative")
    labels = request.scoring.label_ids
    _require(labels != (), "scoring.label_ids is empty")
    _require(labels is None or len(set(labels)) == len(labels), "scoring.label_ids holds an id twice")


def _check_output(request: Request) -> None:
    asked = [k for k in STRUCTURED if getattr(request.output, k) is not None]
    _require(len(asked) <= 1, f"output: at most one of {', '.join(asked)}")
    _require(request.output.json_object is not False, "output.json_object is true or unset")
    _require(request.output.choice != (), "output.choice is empty")
