"""`logproof generate`: text from one prompt, with logprobs of the sampled tokens if asked."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from logproof.cli.access.access_options import AccessOptions, FromFile
from logproof.cli.access.print_notes import print_notes
from logproof.cli.access.prompt_files import read_prompts, read_schema
from logproof.cli.access.tables import token_table
from logproof.cli.option_groups import OptionGroup, spread
from logproof.cli.options import AsJson, DialectName, ModelURL, wire_options
from logproof.cli.printing import note, out, print_json, visible
from logproof.client import access
from logproof.dialects.call import Call
from logproof.errors import UsageError, clip
from logproof.ir.message import text_message
from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring

SampledTop = Annotated[
    int | None, typer.Option("--top", "-k", "--logprobs", help="Score the sampled tokens, with K rivals each.")
]
WireOption = Annotated[list[str] | None, typer.Option("--option", metavar="NAME=JSON", help="Wire field; repeatable.")]


@dataclass(frozen=True)
class SamplingOptions(OptionGroup):
    """How tokens are drawn."""

    max_tokens: Annotated[int | None, typer.Option("--max-tokens")] = 64
    temperature: Annotated[float | None, typer.Option("--temperature")] = None
    top_p: Annotated[float | None, typer.Option("--top-p")] = None
    top_k: Annotated[int | None, typer.Option("--top-k")] = None
    seed: Annotated[int | None, typer.Option("--seed")] = None
    n: Annotated[int | None, typer.Option("--n")] = None
    stop: Annotated[list[str] | None, typer.Option("--stop", help="Stop string; repeatable.")] = None

    def sampling(self) -> Sampling:
        """The leaves that were set."""
        return Sampling(
            self.max_tokens,
            self.temperature,
            self.top_p,
            self.top_k,
            self.seed,
            tuple(self.stop) if self.stop else None,
            self.n,
        )


@dataclass(frozen=True)
class OutputOptions(OptionGroup):
    """What the text must be."""

    json_schema: Annotated[Path | None, typer.Option("--json-schema", help="File with a JSON Schema.")] = None
    regex: Annotated[str | None, typer.Option("--regex")] = None
    choice: Annotated[list[str] | None, typer.Option("--choice", help="Allowed text; repeatable.")] = None

    def output(self) -> Output:
        """The constraint. Raises as `read_schema`."""
        return Output(
            json_schema=read_schema(self.json_schema) if self.json_schema else None,
            regex=self.regex,
            choice=tuple(self.choice) if self.choice else None,
        )


@spread
def generate(
    prompt: Annotated[str | None, typer.Argument(help="Text to continue, or the user's message with --chat.")] = None,
    model: ModelURL = "http://127.0.0.1:8000",
    dialect: DialectName = "auto",
    chat: Annotated[bool, typer.Option("--chat", help="Send the prompt as a user message.")] = False,
    system: Annotated[str | None, typer.Option("--system", help="System message, with --chat.")] = None,
    sampling: SamplingOptions = SamplingOptions(),
    top: SampledTop = None,
    output: OutputOptions = OutputOptions(),
    stream: Annotated[bool, typer.Option("--stream", help="Ask for a stream.")] = False,
    option: WireOption = None,
    file: FromFile = None,
    endpoint: AccessOptions = AccessOptions(),
    as_json: AsJson = False,
) -> None:
    """Generate text, with logprobs of the sampled tokens on request."""
    request = Request(
        endpoint.model_name or "",
        _input(read_prompts([prompt] if prompt is not None else None, file)[0], system, chat=chat),
        sampling=sampling.sampling(),
        scoring=Scoring(sampled=top),
        output=output.output(),
        schedule=Schedule(stream=stream or None),
        options=wire_options(option),
    )
    _print_choices(asyncio.run(access.generate(endpoint.access(model, dialect), request, note)), as_json)


def _input(text: str, system: str | None, *, chat: bool) -> Input:
    """The prompt as text, or as the user's message after a system message."""
    if system is not None and not chat:
        raise UsageError("--system goes with --chat")
    if not chat:
        return Input(text=text)
    before = (text_message("system", system),) if system is not None else ()
    return Input(messages=(*before, text_message("user", text)))


def _print_choices(call: Call, as_json: bool) -> None:
    print_notes(call)
    if as_json:
        print_json(call.response)
        return
    for choice in call.response.choices:
        matched = f", matched {choice.finish.matched!r}" if choice.finish.matched is not None else ""
        note(f"choice {choice.index}: {choice.finish.reason} ({clip(str(choice.finish.raw), 40)}{matched})")
        out.print(visible(choice.text), markup=False)
        if choice.tokens is not None:
            out.print(token_table(choice.tokens, f"sampled, {choice.tokens.meaning} logprobs"))
