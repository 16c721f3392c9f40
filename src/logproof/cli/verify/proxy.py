"""`logproof proxy`: a recording reverse proxy in front of an engine, for unmodified clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, cast

import msgspec
import typer

from logproof.cli import options as opt
from logproof.cli.printing import remark
from logproof.cli.verify import verify_options
from logproof.client.connect import open_endpoint
from logproof.client.probe import default_sampling, probe
from logproof.errors import UsageError
from logproof.http.transport import Transport
from logproof.ir.facts import Facts
from logproof.proxy.app import STATUS, Proxy
from logproof.proxy.captured_exchange import CapturedExchange
from logproof.proxy.recorder import OnFull, Recorder
from logproof.proxy.request_plan import ROUTES, asks
from logproof.proxy.rotating_lines import RotatingLines
from logproof.proxy.serve import listen, run
from logproof.proxy.upstream import Upstream
from logproof.verify.artifact import artifact as art
from logproof.verify.artifact.artifact import Claim
from logproof.verify.record import defaults as filling
from logproof.verify.record.claim import claim_of
from logproof.verify.record.defaults import Defaults
from logproof.verify.record.observed import ObservedExchange, artifacts_of

ClaimFor = Callable[[str], Claim]
"""Claim of the model that a request names."""


def proxy(
    upstream: Annotated[str, typer.Option("--upstream", "-u", metavar="URL", help="Base URL of the engine.")],
    output: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Directory for the artifact files.")],
    listen_at: Annotated[str, typer.Option("--listen", "-l", metavar="HOST:PORT")] = "127.0.0.1:8080",
    top_k: Annotated[int, typer.Option("--top-k", min=0, help="Entries recorded at each position.")] = 5,
    on_full: Annotated[
        str, typer.Option("--on-full", help="open: serve and count the loss; closed: answer 503.")
    ] = "open",
    wire_log: Annotated[bool, typer.Option("--wire-log", help="Also keep requests and replies, without keys.")] = False,
    queue: Annotated[int, typer.Option("--queue", min=1, help="Most calls that wait to be written.")] = 1024,
    rotate_mb: Annotated[int, typer.Option("--rotate-mb", min=1, help="Size at which a file is closed.")] = 64,
    rotate_s: Annotated[float, typer.Option("--rotate-s", min=0.0, help="Age at which a file is closed.")] = 30.0,
    claim: verify_options.ClaimedModel = None,
    dtype: verify_options.Dtype = None,
    runner: verify_options.Runner = None,
    device: verify_options.Device = None,
    profile: verify_options.Profile = None,
    identity: verify_options.Identity = None,
    eos_id: verify_options.EosIds = None,
    generation_config: verify_options.GenerationConfig = None,
    default: verify_options.DefaultValues = None,
    sign_key: verify_options.SignKey = None,
    key_env: opt.KeyEnv = None,
) -> int:
    """Stand in front of an engine and record each chat or completion call as an artifact; clients need no change.

    Sampling that a request leaves out is recorded as the engine tells it, or as --generation-config and --default
    state it, else as unresolved. The key of --key-env is used for the probe at the start alone; clients' own keys pass
    through and are not kept. Ends on Ctrl-C or SIGTERM: exit 0, or 2 where calls were lost.
    """
    mode = _mode(on_full)
    options = opt.connection("auto", None, key_env=key_env, texts=False)
    place = open_endpoint(upstream, options, "bearer")
    config, single = verify_options.defaults(generation_config, default)
    seal_key = verify_options.sign_key(sign_key)
    facts, told = asyncio.run(_facts(Transport(place)))
    gaps = filling.merged(filling.of_engine(told), config, single)
    known: dict[str, str | None] = {"dtype": dtype, "runner": runner, "device": device, "sampler_profile": profile}
    known |= verify_options.identity(identity)
    eos = tuple(eos_id) if eos_id else gaps.eos_ids

    def claims(model: str) -> Claim:
        return claim_of(facts, claim or model, eos_ids=eos, **known)

    lines = RotatingLines(output, "artifacts", max_bytes=rotate_mb << 20, max_age_s=rotate_s)
    wires = RotatingLines(output, "wire", max_bytes=rotate_mb << 20, max_age_s=rotate_s) if wire_log else None
    recorder = Recorder(FileSink(lines, wires, facts, claims, place.display, gaps, seal_key), mode, capacity=queue)
    able = {route: asks(facts.fields.get(route, ()), top_k, facts.max_logprobs) for route in ROUTES}
    made = Proxy(Upstream(place.root), recorder, able)
    with listen(listen_at) as socket:
        host, port = socket.getsockname()[:2]
        left = lines.recovered + (wires.recovered if wires is not None else [])
        _announce(made, f"http://{host}:{port}", output, left)
        _tell_gaps(gaps)
        run(made, socket)
    return _farewell(recorder)


async def _facts(transport: Transport) -> tuple[Facts, dict[str, float]]:
    """What the engine is, and what it tells about its default sampling."""
    async with transport:
        facts = await probe(transport)
        return facts, await default_sampling(transport, facts)


def _mode(text: str) -> OnFull:
    if text not in ("open", "closed"):
        raise UsageError(f"--on-full takes open or closed, got {text!r}")
    return cast(OnFull, text)


def _announce(made: Proxy, url: str, output: Path, left_open: list[Path]) -> None:
    for path in left_open:
        remark(f"{path.name} was left open by an earlier process; its whole lines are kept")
    idle = [route for route, able in made.able.items() if not able.any]
    for route in idle:
        remark(f"{route}: the engine lists no token ids, so nothing is asked and artifacts hold no logprobs")
    remark(f"proxy at {url} for {made.upstream.root}, artifacts in {output}; it {made.words}; status at {STATUS}")


def _tell_gaps(gaps: Defaults) -> None:
    """Where the sampling of requests that do not state it comes from, and what stays open."""
    if gaps.values:
        told = ", ".join(f"{name} {known.value} ({known.source})" for name, known in sorted(gaps.values.items()))
        remark(f"sampling that a request leaves out: {told}")
    open_ = [name for name in filling.NEUTRAL if name not in gaps.values]
    if open_:
        remark(f"not known of requests that leave it out: {', '.join(open_)}; --generation-config states it")


def _farewell(recorder: Recorder) -> int:
    c = recorder.counts
    remark(f"{c.recorded} calls recorded, {c.lost} lost, {c.unreadable} unreadable, {c.refused} refused")
    if c.last_error:
        remark(f"last error: {c.last_error}")
    return 2 if c.lost else 0


class FileSink:
    """Writes the artifacts of exchanges, and on request the exchanges themselves, as JSON lines."""

    def __init__(
        self,
        lines: RotatingLines,
        wires: RotatingLines | None,
        facts: Facts,
        claims: ClaimFor,
        endpoint: str,
        gaps: Defaults | None = None,
        seal_key: bytes | None = None,
    ) -> None:
        self._lines = lines
        self._wires = wires
        self._facts = facts
        self._claims = claims
        self._endpoint = endpoint
        self._gaps = gaps
        self._seal_key = seal_key
        self._lock = threading.Lock()

    def write(self, exchange: CapturedExchange) -> None:
        """The wire log first: it also holds what becomes no artifact. Raises as `artifacts_of`, and StoreError."""
        with self._lock:
            if self._wires is not None:
                self._wires.write(wire_line(exchange))
            if exchange.status == 200:
                self._artifacts(exchange)

    def _artifacts(self, exchange: CapturedExchange) -> None:
        claim = self._claims(_model_of(exchange))
        for artifact in artifacts_of(seen(exchange), self._facts, claim, self._endpoint, self._gaps):
            self._lines.write(art.encode(verify_options.sealed(artifact, self._seal_key)))

    def tick(self) -> None:
        """Close files that are old enough. Raises StoreError."""
        with self._lock:
            self._lines.tick()
            if self._wires is not None:
                self._wires.tick()

    def close(self) -> None:
        """Make the files durable. Raises StoreError."""
        with self._lock:
            self._lines.close()
            if self._wires is not None:
                self._wires.close()


def seen(exchange: CapturedExchange) -> ObservedExchange:
    """An exchange as the verify room takes it."""
    return ObservedExchange(
        path=exchange.path,
        body=exchange.forwarded,
        reply=exchange.reply,
        streamed=exchange.streamed,
        width=exchange.width,
        when=datetime.fromisoformat(exchange.started_at),
        request_sha256=exchange.forwarded_sha256,
        reply_sha256=exchange.reply_sha256,
    )


def _model_of(exchange: CapturedExchange) -> str:
    try:
        return msgspec.json.decode(exchange.forwarded, type=_Named).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "unknown"


class _Named(msgspec.Struct):
    model: str = "unknown"


def wire_line(exchange: CapturedExchange) -> bytes:
    """An exchange as one line of a wire recording: bodies as JSON where they are JSON, as text otherwise."""
    record: dict[str, object] = {
        "method": "POST",
        "path": exchange.path,
        "started_at": exchange.started_at,
        "request": _json_or_text(exchange.forwarded),
        "sent": None if exchange.sent == exchange.forwarded else _json_or_text(exchange.sent),
        "status": exchange.status,
        "headers": {"content-type": exchange.content_type},
        "complete": exchange.complete,
        "asked": exchange.asked,
        "seconds": exchange.seconds,
        "request_sha256": exchange.forwarded_sha256,
        "response_sha256": exchange.reply_sha256,
        "served_sha256": exchange.served_sha256,
    }
    decoded = None if exchange.streamed else _json(exchange.reply)
    if decoded is None:
        record["response_text"] = exchange.reply.decode(errors="replace")
    else:
        record["response"] = decoded
    return msgspec.json.encode(record)


def _json(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _json_or_text(data: bytes) -> object:
    found = _json(data)
    return data.decode(errors="replace") if found is None else found
