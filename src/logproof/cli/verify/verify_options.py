"""What the verification commands share: their options, and the way from files and words to the verify room."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from logproof.cli import options as opt
from logproof.errors import UsageError
from logproof.files import naming, read_bounded
from logproof.verify.artifact.known_request import KnownRequest
from logproof.verify.artifact.request_files import read_requests
from logproof.verify.artifact.signing import read_public_key
from logproof.verify.checks.case import ServerStatement
from logproof.verify.policy import MAX_BYTES, Policy, load
from logproof.verify.record.capture import Pins, fresh_nonce
from logproof.verify.record.defaults import Defaults, merged, stated
from logproof.verify.record.generation_config import config_defaults
from logproof.verify.record.stated_claim import StatedClaim, identity
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.sampler import Sampler

Prompts = Annotated[
    Path,
    typer.Argument(help='Prompt file: {"text"}, {"token_ids"} or {"messages"} a line, with an optional {"output"}.'),
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace a file of artifacts that is there.")]
Artifacts = Annotated[list[Path], typer.Argument(help="Artifact files, .jsonl or .parquet.", metavar="ARTIFACT...")]
EngineURL = Annotated[str, typer.Option("--engine", "-e", metavar="URL", help="Base URL of the trusted engine.")]
PolicyFile = Annotated[Path | None, typer.Option("--policy", "-p", help="Policy that `calibrate` wrote.")]
MethodName = Annotated[str, typer.Option("--method", help="decode, prefill or auto.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
TopP = Annotated[float, typer.Option("--top-p", min=0.0, max=1.0)]
TopK = Annotated[int, typer.Option("--top-k", min=0, help="0 is off.")]
MinP = Annotated[float, typer.Option("--min-p", min=0.0, max=1.0)]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1)]
Width = Annotated[int, typer.Option("--width", "-k", min=0, help="Entries recorded at each position.")]
Fixed = Annotated[bool, typer.Option("--fixed", help="Record logprobs in steps of 1/1024 nat: smaller.")]
Nonce = Annotated[
    str | None, typer.Option("--nonce", help="Seeds derive from it and the prompt's id; random if unset.")
]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Claimed number format: float32, bfloat16, float16.")]
Runner = Annotated[str | None, typer.Option("--runner", help="Claimed vLLM model runner: v1 or v2.")]
Device = Annotated[str | None, typer.Option("--device", help="Claimed device: cpu or cuda.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Claimed sampler profile, if known.")]
ClaimedModel = Annotated[str | None, typer.Option("--claim", help="Claimed model, if the served name is another.")]
Identity = Annotated[
    list[str] | None,
    typer.Option(
        "--identity",
        metavar="NAME=VALUE",
        help="Claimed revision, weights_digest, tokenizer_digest or chat_template_digest; a digest is 64 hex digits, or"
        " a file whose SHA-256 is taken. Repeatable.",
    ),
]
EosIds = Annotated[list[int] | None, typer.Option("--eos-id", help="Id that ends a completion; repeatable.")]
Concurrency = Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Requests in flight.")]


GenerationConfig = Annotated[
    str | None,
    typer.Option(
        "--generation-config",
        metavar="vllm|FILE",
        help="What the engine takes for sampling that a request leaves out: vllm (its neutral values) or the"
        " generation_config.json that it was started with.",
    ),
]
DefaultValues = Annotated[
    list[str] | None,
    typer.Option("--default", metavar="LEAF=VALUE", help="State one such value, as in --default top_k=50; repeatable."),
]
ServedAs = Annotated[
    list[str] | None,
    typer.Option("--served-as", metavar="NAME", help="Name of the claimed model at its server; repeatable."),
]
Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Replays made; their spread is the noise.")]
Fill = Annotated[
    bool,
    typer.Option(
        "--score-missing",
        help="Ask by name for recorded tokens that the engine's own list lacks; only where it serves nobody else.",
    ),
]


SignKey = Annotated[
    Path | None,
    typer.Option(
        "--sign-key", metavar="FILE", help="Sign artifacts and requests with this ed25519 key: 32 bytes, raw or hex."
    ),
]


RequireKey = Annotated[
    list[str] | None,
    typer.Option(
        "--require-key",
        metavar="HEX|FILE",
        help="Records must be signed by this ed25519 public key, or by one of several: 64 hex digits, or a file of 32"
        " bytes, raw or hex. Repeatable.",
    ),
]


def public_keys(values: list[str] | None) -> tuple[str, ...]:
    """The required public keys, hex. Raises UsageError, StoreError."""
    return tuple(read_public_key(value) for value in values or ())


RequestFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--requests",
        metavar="FILE|DIR",
        help="What the requester asked: file of `capture --requests`, folder of `proxy --requests`. Repeatable.",
    ),
]
RequesterKey = Annotated[
    str | None,
    typer.Option("--requester-key", metavar="KEY", help="Count only requests that this ed25519 public key signed."),
]


def requests(files: list[Path] | None, key: str | None) -> dict[str, KnownRequest]:
    """The requester's own requests by digest. Raises UsageError, ArtifactError, StoreError."""
    if key is not None and not files:
        raise UsageError("--requester-key says who signed the requests", hint="name their file: --requests FILE")
    return read_requests(files or (), None if key is None else read_public_key(key))


def unused(path: Path, *, replace: bool) -> None:
    """Raise UsageError for a file of artifacts that is there, unless it may be replaced: calls made it."""
    if path.exists() and not replace:
        raise UsageError(f"{path} exists", hint="name another file, or add --replace")


def alone(fill: bool, concurrency: int) -> None:
    """Raises UsageError where tokens are asked by name while other replays are in flight."""
    if fill and concurrency > 1:
        raise UsageError("--score-missing goes one by one", hint="vLLM spoils the lists of requests beside it")


def single_defaults(values: list[str] | None) -> Defaults:
    """Single values that an operator states of an engine's defaults. Raises UsageError."""
    return stated(opt.wire_options(values, "--default"))


def server_statement(
    served_as: list[str] | None, generation_config: str | None, default: list[str] | None
) -> ServerStatement:
    """What a verifier states of the server of the records. Raises UsageError."""
    defaults = merged(Defaults(), config_defaults(generation_config), single_defaults(default))
    values = {leaf: one.value for leaf, one in defaults.values.items()}
    return ServerStatement(defaults=values, served_as=tuple(served_as or ()))


def stated_claim(
    model: str | None,
    dtype: str | None,
    runner: str | None,
    device: str | None,
    profile: str | None,
    names: list[str] | None,
    eos_ids: list[int] | None = None,
) -> StatedClaim:
    """What a command line says about the claimed executor. names: of --identity. Raises UsageError, StoreError."""
    claim = StatedClaim(
        model=model,
        dtype=dtype,
        runner=runner,
        device=device,
        sampler_profile=profile,
        eos_ids=tuple(eos_ids) if eos_ids else None,
    )
    return msgspec.structs.replace(claim, **identity(opt.pair("--identity", text) for text in names or []))


def policy(path: Path) -> Policy:
    """A checked policy. Raises StoreError, UsageError."""
    with naming(path):
        return load(read_bounded(path, MAX_BYTES))


def method(name: str) -> MethodChoice:
    """A replay method by name. Raises UsageError."""
    known: dict[str, MethodChoice] = {"auto": "auto", "decode": "decode", "prefill": "prefill"}
    if name not in known:
        raise UsageError(f"--method takes decode, prefill or auto, got {name!r}")
    return known[name]


def pins(
    sampler: Sampler,
    max_tokens: int,
    width: int,
    nonce: str | None,
    *,
    fixed: bool = False,
    defaults: Defaults | None = None,
) -> Pins:
    """What every call of a command asks for; without a nonce, a random one. defaults: stated ones of the endpoint."""
    return Pins(
        sampler=sampler,
        max_tokens=max_tokens,
        k=width,
        nonce=nonce or fresh_nonce(),
        denominator=1024 if fixed else None,
        defaults=defaults or Defaults(),
    )


def evidence_words(log_e: float) -> str:
    """An e-value's logarithm for a reader."""
    return f"{log_e:.2f}" if abs(log_e) < 1e6 else f"{log_e:.3g}"
