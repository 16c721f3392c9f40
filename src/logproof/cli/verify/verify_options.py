"""What the verification commands share: their options, and the way from files and words to the verify room."""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from logproof.cli import options as opt
from logproof.client.connect import Connection
from logproof.errors import ArtifactError, UsageError
from logproof.files import naming, read_bounded
from logproof.verify import policy as policies
from logproof.verify.artifact import artifact_files, signing
from logproof.verify.artifact.artifact import Artifact, Claim
from logproof.verify.policy import Policy
from logproof.verify.record import capture as capturing
from logproof.verify.record import defaults as filling
from logproof.verify.record.capture import Pins, Prompt
from logproof.verify.record.claim import claim_of
from logproof.verify.record.defaults import Defaults
from logproof.verify.replay.replay_plan import MethodChoice
from logproof.verify.stats.support import Sampler

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
    typer.Option("--sign-key", metavar="FILE", help="Sign each artifact with this ed25519 key: 32 bytes, raw or hex."),
]


def unused(path: Path, *, replace: bool) -> None:
    """Raise UsageError for a file of artifacts that is there, unless it may be replaced: calls made it."""
    if path.exists() and not replace:
        raise UsageError(f"{path} exists", hint="name another file, or add --replace")


def sealed(artifact: Artifact, key: bytes | None) -> Artifact:
    """The artifact, signed where there is a key."""
    return artifact if key is None else signing.sign(artifact, key)


def sign_key(path: Path | None) -> bytes | None:
    """The private key of a file. Raises UsageError where it holds none, StoreError."""
    if path is None:
        return None
    data = read_bounded(path, 4096)
    if len(data) != signing.KEY_BYTES:
        try:
            data = bytes.fromhex(data.decode())
        except ValueError:
            data = b""
    if len(data) != signing.KEY_BYTES:
        raise UsageError(f"{path} holds no ed25519 private key", hint="32 bytes, raw or as 64 hex digits")
    return data


def alone(fill: bool, concurrency: int) -> None:
    """Raises UsageError where tokens are asked by name while other replays are in flight."""
    if fill and concurrency > 1:
        raise UsageError("--score-missing goes one by one", hint="vLLM spoils the lists of requests beside it")


def defaults(config: str | None, values: list[str] | None) -> tuple[Defaults, Defaults]:
    """What an operator states about an engine's defaults: its generation config, and single values.

    Raises UsageError, StoreError.
    """
    single = filling.stated(opt.wire_options(values, "--default"))
    if config is None:
        return Defaults(), single
    if config == "vllm":
        return filling.neutral(), single
    path = Path(config)
    path = path / "generation_config.json" if path.is_dir() else path
    with naming(path):
        return filling.of_config(read_bounded(path, 1 << 20)), single


class ClaimOptions(msgspec.Struct, frozen=True):
    """What a command line says about the claimed executor."""

    model: str | None
    dtype: str | None
    runner: str | None
    device: str | None
    profile: str | None
    eos_ids: tuple[int, ...] | None
    identity: dict[str, str] = {}

    def of(self, connection: Connection) -> Claim:
        """The claim of an endpoint: these, and what the probe found."""
        known: dict[str, str | None] = {
            "dtype": self.dtype,
            "runner": self.runner,
            "device": self.device,
            "sampler_profile": self.profile,
        }
        known |= self.identity
        return claim_of(connection.facts, self.model or connection.model, eos_ids=self.eos_ids, **known)


DIGESTS = ("weights_digest", "tokenizer_digest", "chat_template_digest")


def identity(values: list[str] | None) -> dict[str, str]:
    """What a command line says of the claimed model beyond its name. Raises UsageError, StoreError."""
    found: dict[str, str] = {}
    for name, value in (opt.pair("--identity", text) for text in values or []):
        if name not in ("revision", *DIGESTS):
            raise UsageError(f"--identity knows revision, {', '.join(DIGESTS)}; got {name!r}")
        if name in found:
            raise UsageError(f"--identity gives {name} twice")
        if not value:
            kind = "a name" if name == "revision" else "64 hex digits or a file"
            raise UsageError(f"--identity {name}= is empty", hint=f"give {kind}")
        found[name] = value
    return {name: value if name == "revision" else _digest(value) for name, value in found.items()}


def _digest(value: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", value):
        return value
    return hashlib.sha256(read_bounded(Path(value), MAX_DIGESTED)).hexdigest()


MAX_DIGESTED = 256 << 20
"""Longest file that is digested for a claim: a tokenizer or template, not weights."""


def prompts(file: Path) -> list[Prompt]:
    """Prompts of a file. Raises StoreError, UsageError, DatasetError."""
    return capturing.prompts(read_bounded(file, capturing.MAX_PROMPTS_BYTES), str(file))


def artifacts(paths: list[Path]) -> list[Artifact]:
    """Artifacts of several files. Raises ArtifactError where there is none."""
    found = [a for path in paths for a in artifact_files.read(path)]
    if not found:
        raise ArtifactError(f"there is no artifact in {', '.join(map(str, paths))}")
    return found


def policy(path: Path) -> Policy:
    """A checked policy. Raises StoreError, UsageError."""
    with naming(path):
        return policies.load(read_bounded(path, policies.MAX_BYTES))


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
    gaps: Defaults | None = None,
) -> Pins:
    """What every call of a command asks for; without a nonce, a random one. gaps: stated defaults of the endpoint."""
    return Pins(
        sampler=sampler,
        max_tokens=max_tokens,
        k=width,
        nonce=nonce or secrets.token_hex(8),
        denominator=1024 if fixed else None,
        defaults=gaps or Defaults(),
    )
