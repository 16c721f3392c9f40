"""`logproof score`: the logprob, rank and rivals of every token of a prompt."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from logproof.cli.access.access_options import AccessOptions, FromFile
from logproof.cli.access.print_notes import print_notes
from logproof.cli.access.prompt_files import parse_ids, read_prompts
from logproof.cli.access.tables import token_table
from logproof.cli.option_groups import spread
from logproof.cli.options import AsJson, DialectName, ModelURL
from logproof.cli.printing import note, out, print_json
from logproof.client import access
from logproof.dialects.call import Call
from logproof.ir.request import Input


@spread
def score(
    prompt: Annotated[list[str] | None, typer.Argument(help="Text to score; several are scored one by one.")] = None,
    model: ModelURL = "http://127.0.0.1:8000",
    dialect: DialectName = "auto",
    top: Annotated[int, typer.Option("--top", "-k", help="Rivals at each position.")] = 0,
    ids: Annotated[bool, typer.Option("--ids", help="Prompts are token ids, separated by commas.")] = False,
    file: FromFile = None,
    endpoint: AccessOptions = AccessOptions(),
    as_json: AsJson = False,
) -> None:
    """Score prompts: the logprob, rank and rivals of every token of the prompt itself."""
    texts = read_prompts(prompt, file)
    inputs = [Input(token_ids=parse_ids(t)) if ids else Input(text=t) for t in texts]
    for call in asyncio.run(access.score(endpoint.access(model, dialect), inputs, top, note)):
        _print_scores(call, as_json)


def _print_scores(call: Call, as_json: bool) -> None:
    print_notes(call)
    prompt = call.response.prompt
    if as_json or prompt is None:
        print_json(call.response)
        return
    out.print(token_table(prompt, f"prompt, {call.dialect}, {prompt.meaning} logprobs"))
