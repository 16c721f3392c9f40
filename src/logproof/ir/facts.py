"""Facts: what one endpoint is and can do, as a probe found it (client/probe.py).

Dialects read facts to decide leaves that depend on the deployment; an unknown fact decides like an absent
feature. `sources` says for each fact where it came from.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Plugin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The replay plugin of a vLLM server, from its status route.

    enforced_replay, logprobs_mode: on and proven by the server's own canary. reason: why not, if off.
    default_mode: the deployment's logprobs mode.
    """

    version: str
    enforced_replay: bool = False
    logprobs_mode: bool = False
    default_mode: str | None = None
    reason: str | None = None
    status: dict[str, object] = {}


class Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    """One endpoint. None and empty mean unknown.

    engine: vllm, sglang, llama.cpp, tgi, openai, anthropic, gemini, litellm (a gateway), or None. models: served names.
    max_model_len: tokens of context. max_logprobs: widest top-k. vocab_size: ids below it are valid.
    fields: route -> names of the body fields that the server's OpenAPI document lists.
    logprobs_mode: what sampled logprobs were measured to be logprobs of; prompt logprobs are raw in either mode.
    routes: paths that the server lists. tokenizer: it serves /tokenize and /detokenize. api_version: version of
    the API that the caller's own headers ask for, where a wire has one.
    """

    engine: str | None = None
    version: str | None = None
    models: tuple[str, ...] = ()
    model_root: str | None = None
    max_model_len: int | None = None
    max_logprobs: int | None = None
    vocab_size: int | None = None
    logprobs_mode: Literal["raw", "processed"] | None = None
    fields: dict[str, tuple[str, ...]] = {}
    routes: tuple[str, ...] = ()
    tokenizer: bool = False
    fingerprint: str | None = None
    deterministic: bool | None = None
    api_version: str | None = None
    plugin: Plugin | None = None
    sources: dict[str, str] = {}

    def has_field(self, route: str, name: str) -> bool:
        """Whether the server's own document lists this body field of this route."""
        return name in self.fields.get(route, ())

    def has_plugin(self, feature: str) -> bool:
        """Whether the replay plugin is there with `enforced_replay` or `logprobs_mode` on."""
        return self.plugin is not None and bool(getattr(self.plugin, feature))
