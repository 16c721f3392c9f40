"""What the requests of OpenAI's chat and responses wires share: ranges, schemas, the choice of a tool, biases."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from logproof.dialects.ledger import Ledger
from logproof.ir.facts import Facts
from logproof.ir.request import Output, Sampling, Tools

_SCHEMA_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def refuse_ranges(sampling: Sampling, facts: Facts, ledger: Ledger) -> None:
    """Refuse values outside what these wires document."""
    if sampling.max_tokens == 0:
        ledger.refuse("sampling.max_tokens", "servers of this wire refuse 0 tokens; ask for 1")
    if (sampling.temperature or 0) > 2 and facts.engine != "sglang":
        ledger.refuse("sampling.temperature", "a temperature is at most 2 on this wire")
    for name in ("frequency_penalty", "presence_penalty"):
        if abs(getattr(sampling, name) or 0) > 2:
            ledger.refuse(f"sampling.{name}", "a penalty lies between -2 and 2 on this wire")


def lower_stop(sampling: Sampling, ledger: Ledger) -> None:
    """Send the stop strings; an empty list asks for nothing."""
    if sampling.stop == ():
        ledger.noop("sampling.stop", "no stop string is asked, and this wire has none of its own")
    else:
        ledger.send("sampling.stop", "/stop", list(sampling.stop or ()))


def bias(logit_bias: Mapping[int, float]) -> dict[str, float]:
    """`logit_bias` of these wires: ids as texts; whole numbers as integers, which is what OpenAI documents."""
    return {str(token): int(value) if value == int(value) else value for token, value in logit_bias.items()}


def lower_schema(output: Output, facts: Facts, ledger: Ledger, format_at: str, schema_at: str) -> None:
    """Decide the JSON leaves. format_at: pointer of the object that names the format. schema_at: of the schema's."""
    if output.json_object:
        ledger.send("output.json_object", f"{format_at}/type", "json_object")
    if output.json_schema is None or ledger.stopped("output.json_schema"):
        ledger.noop("output.name", "there is no schema to name")
        ledger.noop("output.strict", "there is no schema to hold to")
        return
    if output.name is not None and _SCHEMA_NAME.fullmatch(output.name) is None:
        ledger.refuse("output.name", "a schema's name has up to 64 of a-z A-Z 0-9 _ - on this wire")
    if output.strict is False and facts.engine == "vllm":
        ledger.refuse("output.strict", "vLLM always holds the schema exactly")
    ledger.constant(f"{format_at}/type", "json_schema", "the schema's place says what it is")
    ledger.send("output.name", f"{schema_at}/name")
    if output.name is None or ledger.stopped("output.name"):
        ledger.constant(f"{schema_at}/name", "output", "this wire wants a name for the schema")
    ledger.send("output.json_schema", f"{schema_at}/schema")
    ledger.send("output.strict", f"{schema_at}/strict")


def lower_choice(
    tools: Tools, listed: Sequence[object], kind: str, named: Mapping[str, object], ledger: Ledger
) -> None:
    """Decide which tool is called. listed: what can be chosen from, and `kind` its name. named: the wire's form of
    the choice of one function."""
    choice = tools.choice or ""
    name = choice.removeprefix("function:")
    if not listed and choice != "none":
        ledger.refuse("tools.choice", f"there are no {kind} to choose from")
        ledger.refuse("tools.parallel", f"there are no {kind} to call")
    if name != choice and name not in [f.name for f in tools.functions or ()]:
        ledger.refuse("tools.choice", f"no such function: {name}")
    elif name == choice and choice not in ("", "auto", "none", "required"):
        ledger.refuse("tools.choice", "a choice is auto, none, required or function:NAME")
    if not listed:
        ledger.noop("tools.choice", f"there are no {kind}, so none is called")
        ledger.noop("tools.parallel", f"there are no {kind}, so none is called")
        return
    ledger.send("tools.choice", "/tool_choice", choice if name == choice else named)
    ledger.send("tools.parallel", "/parallel_tool_calls")


def refuse_twins(tools: Tools, ledger: Ledger) -> None:
    """Refuse functions of one name: a call could not say which it means."""
    names = [f.name for f in tools.functions or ()]
    if len(set(names)) != len(names):
        ledger.refuse("tools.functions", "two functions share a name")
