"""The Request behind a recorded body of SGLang's /generate."""

from __future__ import annotations

from typing import Any

import msgspec

from logproof.ir.request import Input, Output, Request, Sampling, Schedule, Scoring

NAMES = ("temperature", "top_p", "top_k", "n", "frequency_penalty", "presence_penalty")


def request_of(body: dict[str, Any]) -> Request:
    """A width of the wire serves both channels; the prompt is scored where the start is 0."""
    params = body.get("sampling_params") or {}
    asked, width = body.get("return_logprob", False), body.get("top_logprobs_num") or 0
    labels, stop, bias = body.get("token_ids_logprob"), params.get("stop"), params.get("logit_bias")
    given = body.get("text") if "input_ids" not in body else None
    schema = params.get("json_schema")
    return Request(
        "smollm2",
        Input(text=given, token_ids=tuple(body["input_ids"]) if given is None else None),
        sampling=Sampling(
            max_tokens=params.get("max_new_tokens"),
            stop=tuple([stop] if isinstance(stop, str) else stop) if stop else None,
            logit_bias={int(k): v for k, v in bias.items()} if bias else None,
            **{n: params[n] for n in NAMES if n in params},
        ),
        scoring=Scoring(
            prompt=width if asked and body.get("logprob_start_len") == 0 else None,
            sampled=width if asked and params.get("max_new_tokens") != 0 else None,
            label_ids=tuple(labels) if labels else None,
        ),
        output=Output(
            json_schema=msgspec.json.decode(schema) if schema else None,
            regex=params.get("regex"),
            grammar=params.get("ebnf"),
        ),
        schedule=Schedule(stream=body.get("stream")),
        options={k: v for k, v in params.items() if k == "repetition_penalty"},
    )
