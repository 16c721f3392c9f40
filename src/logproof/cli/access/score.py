"""`score`, `generate` and `probe`: one endpoint, a few requests, exact tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from logproof.cli import options as opt
from logproof.cli.printing import out, print_json, remark, visible
from logproof.cli.tables import facts_table, token_table
from logproof.client.client import Client
from logproof.client.connect import Connection, Options, connect, discover
from logproof.dialects.call import Call
from logproof.dialects.capabilities import parse_requirement, plan
from logproof.dialects.registry import dialect_ids, fitting, get_dialect
from logproof.errors import UsageError, clip
from logproof.files import read_bounded
from logproof.http.recording import RecordingSender
from logproof.http.transport import Sender
from logproof.ir.message import text_message
from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring

SURROGATES = range(0xD800, 0xE000)
"""Code points that stand for bytes that are no UTF-8 in an argument."""

MAX_PROMPT_BYTES = 16 * 1024 * 1024
"""Largest prompt or schema file that a command reads."""
MAX_ID_DIGITS = 20
"""Longest token id that is read; whether it is one of the vocabulary is asked later."""

Record = Annotated[Path | None, typer.Option("--record", metavar="DIR", help="Write each exchange as a file.")]
FromFile = Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from a file.")]
SampledTop = Annotated[
    int | None, typer.Option("--top", "-k", "--logprobs", help="Score the sampled tokens, with K rivals each.")
]
WireOption = Annotated[list[str] | None, typer.Option("--option", metavar="NAME=JSON", help="Wire field; repeatable.")]


def score(
    prompt: Annotated[list[str] | None, typer.Argument(help="Text to score; several are scored one by one.")] = None,
    model: opt.ModelURL = "http://127.0.0.1:8000",
    dialect: opt.DialectName = "auto",
    top: Annotated[int, typer.Option("--top", "-k", help="Rivals at each position.")] = 0,
    ids: Annotated[bool, typer.Option("--ids", help="Prompts are token ids, separated by commas.")] = False,
    file: FromFile = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
    tokenizer: opt.TokenizerPath = None,
    drop: opt.Drop = None,
    require: opt.Require = None,
    record: Record = None,
    as_json: opt.AsJson = False,
) -> None:
    """Score prompts: the logprob, rank and rivals of every token of the prompt itself."""
    texts = _prompts(prompt, file)
    inputs = [Input(token_ids=_ids(t)) if ids else Input(text=t) for t in texts]
    options = opt.connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer, drop=drop
    )

    async def work(connection: Connection, client: Client) -> list[Call]:
        sampling = Sampling(max_tokens=1, temperature=0.0)
        made = [Request(connection.model, i, sampling=sampling, scoring=Scoring(prompt=top)) for i in inputs]
        return [await client.call(r) for r in made]

    for call in _run(model, options, require, record, work):
        _show_scored(call, as_json)


def generate(
    prompt: Annotated[str | None, typer.Argument(help="Text to continue, or the user's message with --chat.")] = None,
    model: opt.ModelURL = "http://127.0.0.1:8000",
    dialect: opt.DialectName = "auto",
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a user message.")] = False,
    system: Annotated[str | None, typer.Option("--system", help="System message, with --chat.")] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens")] = 64,
    temperature: Annotated[float | None, typer.Option("--temperature")] = None,
    top_p: Annotated[float | None, typer.Option("--top-p")] = None,
    top_k: Annotated[int | None, typer.Option("--top-k")] = None,
    seed: Annotated[int | None, typer.Option("--seed")] = None,
    n: Annotated[int | None, typer.Option("--n")] = None,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Stop string; repeatable.")] = None,
    top: SampledTop = None,
    json_schema: Annotated[Path | None, typer.Option("--json-schema", help="File with a JSON Schema.")] = None,
    regex: Annotated[str | None, typer.Option("--regex")] = None,
    choice: Annotated[list[str] | None, typer.Option("--choice", help="Allowed text; repeatable.")] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Ask for a stream.")] = False,
    option: WireOption = None,
    file: FromFile = None,
    model_name: opt.ModelName = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = None,
    tokenizer: opt.TokenizerPath = None,
    drop: opt.Drop = None,
    require: opt.Require = None,
    record: Record = None,
    as_json: opt.AsJson = False,
) -> None:
    """Generate text, with logprobs of the sampled tokens on request."""
    text = _prompts([prompt] if prompt is not None else None, file)[0]
    if system is not None and not chat:
        raise UsageError("--system goes with --chat")
    messages = (*((text_message("system", system),) if system is not None else ()), text_message("user", text))
    given = Input(messages=messages) if chat else Input(text=text)
    sampling = Sampling(max_tokens, temperature, top_p, top_k, seed, tuple(stop) if stop else None, n)
    output = Output(
        json_schema=_schema(json_schema) if json_schema else None, regex=regex, choice=tuple(choice) if choice else None
    )

    fields = opt.wire_options(option)

    async def work(connection: Connection, client: Client) -> list[Call]:
        request = Request(
            connection.model,
            given,
            sampling=sampling,
            scoring=Scoring(sampled=top),
            output=output,
            schedule=Schedule(stream=stream or None),
            options=fields,
        )
        return [await client.call(request)]

    options = opt.connection(
        dialect, model_name, key_env=key_env, header=header, timeout=timeout, tokenizer=tokenizer, drop=drop
    )
    for call in _run(model, options, require, record, work):
        _show_generated(call, as_json)


def probe(
    url: Annotated[str, typer.Argument(metavar="URL", help="Base URL of the endpoint.")],
    record: Record = None,
    key_env: opt.KeyEnv = None,
    header: opt.Header = None,
    timeout: opt.Timeout = 20.0,
    as_json: opt.AsJson = False,
) -> None:
    """Ask an endpoint what it is: engine, version, models, limits, plugin, and the dialects that fit."""
    options = opt.connection(key_env=key_env, header=header, timeout=timeout)

    def through(sender: Sender) -> Sender:
        return RecordingSender(sender, record) if record else sender

    async def ask() -> None:
        facts, _ = await discover(url, options, remark, through)
        if as_json:
            print_json({"facts": facts, "dialects": fitting(facts)})
        else:
            out.print(facts_table(url, facts, fitting(facts)))

    asyncio.run(ask())


def _run(
    url: str,
    options: Options,
    require: list[str] | None,
    record: Path | None,
    work: Callable[[Connection, Client], Awaitable[list[Call]]],
) -> list[Call]:
    """Connect, say what was chosen, check the requirements, and do the work through a recording client if asked."""
    needs = dict(parse_requirement(text) for text in require or [])

    async def go() -> list[Call]:
        async with connect(url, options, remark) as connection:
            client = connection.client
            if options.dialect == "auto":
                remark(f"dialect {client.dialect.id}, chosen for {connection.facts.engine} {connection.facts.version}")
            plan(needs, client.dialect, connection.facts, (get_dialect(i) for i in dialect_ids()))
            if record is not None:
                sender = RecordingSender(connection.transport, record)
                client = Client(sender, client.dialect, connection.facts, tokenizer=client.tokenizer, drop=options.drop)
            return await work(connection, client)

    return asyncio.run(go())


def _show_remarks(call: Call) -> None:
    for decision in call.decisions:
        if decision.reason is not None:
            remark(f"{decision.leaf}: {decision.kind}, {decision.reason}")
    for note in (*call.notes, *call.response.notes):
        remark(f"note: {note}")


def _show_scored(call: Call, as_json: bool) -> None:
    _show_remarks(call)
    prompt = call.response.prompt
    if as_json or prompt is None:
        print_json(call.response)
        return
    out.print(token_table(prompt, f"prompt, {call.dialect}, {prompt.meaning} logprobs"))


def _show_generated(call: Call, as_json: bool) -> None:
    _show_remarks(call)
    if as_json:
        print_json(call.response)
        return
    for choice in call.response.choices:
        matched = f", matched {choice.finish.matched!r}" if choice.finish.matched is not None else ""
        remark(f"choice {choice.index}: {choice.finish.reason} ({clip(str(choice.finish.raw), 40)}{matched})")
        out.print(visible(choice.text), markup=False)
        if choice.tokens is not None:
            out.print(token_table(choice.tokens, f"sampled, {choice.tokens.meaning} logprobs"))


def _prompts(texts: list[str] | None, file: Path | None) -> list[str]:
    if file is not None and not texts:
        return [_read(file)]
    if not texts or file is not None:
        raise UsageError("give a prompt, or --file" if not texts else "give a prompt or --file, not both")
    if any(ord(c) in SURROGATES for text in texts for c in text):
        raise UsageError("the prompt is not valid UTF-8", hint="give it in a file with --file")
    return texts


def _read(file: Path) -> str:
    try:
        return read_bounded(file, MAX_PROMPT_BYTES).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text") from None


def _schema(file: Path) -> dict[str, object]:
    try:
        return msgspec.json.decode(_read(file), type=dict[str, object])
    except msgspec.MsgspecError as error:
        raise UsageError(f"{file} holds no JSON object: {error}") from None


def _ids(text: str) -> tuple[int, ...]:
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isascii() and p.isdecimal() and len(p) <= MAX_ID_DIGITS for p in parts):
        raise UsageError("--ids takes token ids separated by commas")
    return tuple(int(p) for p in parts)
