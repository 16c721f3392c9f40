"""The endpoint plugin ``logproof_http``: the middleware, the canary, and ``GET /logproof/status``.

The status document::

    {
      "plugin": "logproof-vllm", "version": "0.1.0", "vllm": "0.32.0",
      "ready": true,                    enforced requests are served
      "reason": null,                   or why every one of them gets a 400
      "runner": "v1",                   or "v2"; null before an engine is bound
      "features": {"enforced_replay": true, "logprobs_mode": true, "grammar_guard": true,
                   "generate_route": true, "mq_max_chunks": null},
      "off": {"grammar_guard": "..."},  a reason for each feature that is false
      "fields": ["enforced_token_ids", "enforced_tokens", "enforced_str", "enforced_append_eos", "logprobs_mode"],
      "paths": ["/v1/chat/completions", "/v1/completions", "/inference/v1/generate"],
      "canary": {"result": "passed", "enforced": [..], "returned": [..]},
      "vocab_size": 49152,              ids must lie in [0, vocab_size)
      "max_model_len": 2048,
      "eos_token_id": 2,                appended for enforced_tokens and enforced_str; null: nothing to append
      "logprobs_mode": "raw_logprobs",  the deployment's mode
      "limits": {"enforced_tokens": 131072, "top_tokens": 128, "body_bytes": 33554432},
      "contract": {"checked": 30, "broken": []},
      "versions": {"v1": ["0.27.1", ...], "v2": ["0.31", "0.32"]}
    }
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

from logproof_vllm import __version__, canary, contract, fields, settings
from logproof_vllm.runtime import PASSED, STATUS, binding_of
from logproof_vllm.server.asgi import Middleware
from logproof_vllm.server.body import GENERATE_PATH, SERVED_PATHS

logger = logging.getLogger("vllm.logproof")
FEATURES = ("enforced_replay", "logprobs_mode", "grammar_guard", "generate_route")
STATUS_PATH = "/logproof/status"


class LogproofEndpoints:
    """What vLLM's endpoint-plugin loader asks for."""

    name = "logproof_http"
    required_tasks = ("generate",)

    def attach_router(self, app: Any) -> None:
        """Add the status route and the middleware to the server's app."""
        from starlette.responses import JSONResponse

        async def status() -> Any:
            return JSONResponse(document(_routes(app)))

        app.add_api_route(STATUS_PATH, status, methods=["GET"])
        app.add_middleware(Middleware)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """Bind the engine and run the canary. In strict mode raises RuntimeError when the plugin is not ready."""
        if engine_client is None:
            return
        STATUS.engine = engine_client
        tokenizer = await _tokenizer(engine_client)
        STATUS.binding = binding_of(engine_client.vllm_config, tokenizer)
        check_runner()
        if not STATUS.problems:
            await canary.run(engine_client, tokenizer)
        reason = STATUS.refusal()
        if reason is not None and settings.strict():
            raise RuntimeError(f"LOGPROOF_STRICT=1: {reason}")
        if reason is None:
            logger.info("logproof %s is on: %s runner, vLLM %s", __version__, _runner(), STATUS.vllm_version)
        else:
            logger.warning("%s; requests that need it get a 400, others are served", reason)


def check_runner() -> None:
    """Note a runner the plugin does not cover on this version."""
    if _runner() == "v2" and (reason := contract.v2_refusal(STATUS.vllm_version)):
        STATUS.add_problem(f"{reason}; set VLLM_USE_V2_MODEL_RUNNER=0 and restart")


async def _tokenizer(engine: Any) -> Any:
    """None for a server without tokenizer. ``get_tokenizer`` is a coroutine in older versions."""
    try:
        tokenizer = engine.get_tokenizer()
        return await tokenizer if inspect.isawaitable(tokenizer) else tokenizer
    except Exception:
        return None


def _runner() -> str | None:
    return STATUS.binding.runner if STATUS.binding else None


def _routes(app: Any) -> set[str]:
    return {getattr(route, "path", "") for route in app.routes}


def document(routes: set[str]) -> dict[str, object]:
    """The status document of this process; `routes` are the paths that the server serves."""
    reason = STATUS.refusal()
    binding = STATUS.binding
    off = features_off(reason, routes)
    return {
        "plugin": "logproof-vllm",
        "version": __version__,
        "vllm": STATUS.vllm_version,
        "ready": reason is None,
        "reason": reason,
        "runner": _runner(),
        "features": {
            **{name: name not in off for name in FEATURES},
            "mq_max_chunks": settings.max_chunks(),
        },
        "off": off,
        "fields": list(fields.FIELDS),
        "paths": [path for path in SERVED_PATHS if path in routes],
        "canary": {"result": STATUS.canary, **STATUS.canary_details},
        "vocab_size": binding.vocabulary.size if binding else None,
        "max_model_len": binding.max_model_len if binding else None,
        "eos_token_id": binding.vocabulary.eos if binding else None,
        "logprobs_mode": binding.default_mode if binding else None,
        "limits": {
            "enforced_tokens": STATUS.limits.tokens,
            "top_tokens": STATUS.limits.top_tokens,
            "body_bytes": STATUS.limits.body_bytes,
        },
        "contract": {"checked": len(contract.SURFACE), "broken": list(STATUS.problems)},
        "versions": {"v1": list(contract.V1_VERSIONS), "v2": list(contract.V2_VERSIONS)},
    }


def features_off(reason: str | None, routes: set[str]) -> dict[str, str]:
    """A reason for each feature that is off."""
    off: dict[str, str] = {}
    binding = STATUS.binding
    if GENERATE_PATH not in routes:
        off["generate_route"] = f"{GENERATE_PATH} is not served (start with --enable-scale-out)"
    if reason is not None:
        return {**off, **dict.fromkeys(FEATURES[:3], reason)}
    if binding is None or STATUS.canary != PASSED:
        return off
    if binding.runner == "v2":
        off["grammar_guard"] = "structured outputs with enforced tokens are not proved on Model Runner V2"
    if binding.speculative:
        spec = "speculative decoding is on"
        off.update(dict.fromkeys(FEATURES[:3], spec))
    if binding.default_mode not in fields.MODES:
        off["logprobs_mode"] = f"the deployment reports {binding.default_mode}"
    return off
