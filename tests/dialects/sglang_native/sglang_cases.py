"""Recorded replies of SGLang beside the requests that they answer, for the tests of sglang_native."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec
import numpy as np

from logproof.dialects import reply_checks
from logproof.dialects.sglang_native import SGLangNative
from logproof.http.exchange import SseEvent
from logproof.http.sse import SseParser
from logproof.ir.facts import Facts
from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring
from logproof.ir.response import Response

REPLIES = Path(__file__).parents[2] / "replies" / "sglang_native"
FACTS = Facts(engine="sglang", vocab_size=49152, max_model_len=2048)
DIALECT = SGLangNative()

TEXT = "The capital of France is"
IDS = (504, 3575, 282, 4649, 314)
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}},
    "required": ["name"],
    "additionalProperties": False,
}


NO_OUTPUT = Output()


class Leaves(TypedDict, total=False):
    """Leaves of sampling and scoring by their names."""

    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    n: int
    stop: tuple[str, ...]
    frequency_penalty: float
    presence_penalty: float
    logit_bias: dict[int, float]
    prompt: int
    sampled: int
    label_ids: tuple[int, ...]


def request(
    input: Input | None = None, *, stream: bool | None = None, output: Output = NO_OUTPUT, **leaves: Unpack[Leaves]
) -> Request:
    """A request over TEXT with some leaves set."""
    names = {f.name for f in msgspec.structs.fields(Scoring)}
    return Request(
        "smollm2",
        input or Input(text=TEXT),
        sampling=msgspec.convert({k: v for k, v in leaves.items() if k not in names}, Sampling),
        scoring=msgspec.convert({k: v for k, v in leaves.items() if k in names}, Scoring),
        output=output,
        schedule=Schedule(stream=stream),
    )


_FULL: Leaves = {"max_tokens": 4, "prompt": 2, "sampled": 5, "label_ids": (260, 7042, 198), "temperature": 0.0}
_CJK: Leaves = {"max_tokens": 2, "prompt": 4, "sampled": 4, "temperature": 0.0}
_CJK_TEXT = Input(text="日本語🙂 def f(x): return x")
_TWO: Leaves = {"max_tokens": 2, "temperature": 0.9, "n": 2, "sampled": 2, "label_ids": (7042, 260)}

OWN: dict[str, Request] = {
    "score": request(max_tokens=0, prompt=3, temperature=0.0),
    "score_cjk": request(_CJK_TEXT, **_CJK),
    "score_ids": request(Input(token_ids=IDS), **_FULL),
    "score_stream": request(Input(token_ids=IDS), stream=True, **_FULL),
    "incremental_score": request(Input(token_ids=IDS), stream=True, **_FULL),
    "incremental_cjk": request(_CJK_TEXT, stream=True, **_CJK),
    "labels_n2": request(prompt=0, **_TWO),
    "labels_n2_stream": request(stream=True, **_TWO),
    "incremental_n2": request(stream=True, **_TWO),
    "n2_score_only": request(max_tokens=0, n=2, prompt=0, temperature=0.0),
    "plain": request(max_tokens=8, stop=(".",), temperature=0.0),
    "plain_stream": request(max_tokens=8, stop=(".",), stream=True, temperature=0.0),
    "schema": request(
        Input(text="A JSON object with a name: "),
        max_tokens=24,
        sampled=2,
        output=Output(json_schema=SCHEMA),
        temperature=0.0,
    ),
    "json_object": request(
        Input(text="A JSON object: "), max_tokens=40, output=Output(json_object=True), temperature=0.0
    ),
    "choice": request(
        Input(text="Is 2+2=4? Answer:"),
        max_tokens=8,
        sampled=3,
        output=Output(choice=("yes (1+1)", "no. $5", "a b|c")),
        temperature=0.0,
    ),
    "regex": request(Input(text="The year is "), max_tokens=8, output=Output(regex="[0-9]{4}"), temperature=0.0),
    "ebnf": request(
        Input(text="Yes or no: "), max_tokens=8, output=Output(grammar='root ::= "yes" | "no"'), temperature=0.0
    ),
    "eos": request(
        Input(text="<|im_start|>user\nSay hi<|im_end|>\n<|im_start|>assistant\n"),
        max_tokens=40,
        sampled=0,
        temperature=0.0,
    ),
    "seed_free_penalty": request(
        max_tokens=3, temperature=0.7, frequency_penalty=0.5, logit_bias={260: 1.0}, sampled=2
    ),
}
"""Replies that a real server gave to bodies of this dialect: name -> request."""


def recorded(name: str) -> dict[str, object]:
    """One recording."""
    found: dict[str, object] = json.loads((REPLIES / f"{name}.json").read_text())
    return found


def own_body(name: str) -> bytes:
    """The plain body of an own recording, assembled where it came as a stream."""
    found = recorded(f"own_{name}")
    if found["kind"] == "stream":
        return DIALECT.assemble(events(str(found["response"])))
    return msgspec.json.encode(found["response"])


def body(name: str) -> bytes:
    """The body of a recording of the shared set."""
    return msgspec.json.encode(recorded(name)["response"])


def events(text: str) -> list[SseEvent]:
    """The events of a recorded stream."""
    parser = SseParser()
    return parser.feed(text.encode()) + parser.close()


def lift(asked: Request, raw: bytes) -> Response:
    """Lift and check, as the client does."""
    response = DIALECT.lift(asked, raw)
    reply_checks.check(asked, response, FACTS)
    return response


def plain(value: object) -> object:
    """A response as builtins, for comparison; NaN becomes the text `nan`, so that it equals itself."""
    if isinstance(value, np.ndarray):
        return [plain(v) for v in value.tolist()]
    if isinstance(value, float) and np.isnan(value):
        return "nan"
    if isinstance(value, msgspec.Struct):
        return {f.name: plain(getattr(value, f.name)) for f in msgspec.structs.fields(type(value))}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value
