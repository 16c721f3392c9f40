"""Record calls: probe an engine, stand in front of it until a signal, and say how many calls were kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from logproof.client.probe import default_sampling, probe
from logproof.http.endpoint import Endpoint
from logproof.http.transport import Transport
from logproof.ir.facts import Facts
from logproof.proxy.app import Proxy
from logproof.proxy.recorder import OnFull, Recorder, RecorderCounts
from logproof.proxy.request_plan import ROUTES, asks
from logproof.proxy.rotating_lines import RotatingLines
from logproof.proxy.serve import listen, run
from logproof.proxy.sink import ClaimFor, FileSink
from logproof.proxy.upstream import Upstream
from logproof.verify.artifact.artifact import Claim
from logproof.verify.record.defaults import NEUTRAL, Defaults, merged, of_engine
from logproof.verify.record.stated_claim import StatedClaim, claim_of


class RecordingSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are recorded.

    output: directory of the files. listen: HOST:PORT. width: entries at each position. wire_log: keep requests and
    replies too. requests: keep what was requested, for a verifier. queue: most calls that wait to be written.
    rotate_bytes, rotate_s: size and age at which a file is closed. config, single: what the operator states of the
    engine's defaults. sign_key: signs each artifact and request.
    """

    output: Path
    listen: str = "127.0.0.1:8080"
    width: int = 5
    on_full: OnFull = "open"
    wire_log: bool = False
    requests: bool = False
    queue: int = 1024
    rotate_bytes: int = 64 << 20
    rotate_s: float = 30.0
    claim: StatedClaim = StatedClaim()
    config: Defaults = Defaults()
    single: Defaults = Defaults()
    sign_key: bytes | None = None


class RecordingStart(msgspec.Struct, frozen=True, kw_only=True):
    """What stands when the proxy begins to serve.

    url: the proxy's own. on_full: what happens to calls that cannot be recorded, in words. recovered: files that an
    earlier process left open. unasked: routes whose engine lists no token ids. defaults: what the engine takes where a
    request says nothing.
    """

    url: str
    upstream: str
    output: Path
    on_full: str
    recovered: tuple[Path, ...]
    unasked: tuple[str, ...]
    defaults: Defaults

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Sampling leaves that stay open where a request leaves them out."""
        return tuple(name for name in NEUTRAL if name not in self.defaults.values)


def record_calls(
    engine: Endpoint, settings: RecordingSettings, started: Callable[[RecordingStart], None]
) -> RecorderCounts:
    """Serve in front of the engine until SIGINT or SIGTERM, and return what became of the calls.

    started: called once the proxy listens. To be called in the main thread. Raises UsageError for an address that is
    not free and for defaults that the engine denies, EndpointError where no engine answers, StoreError for the disk.
    """
    facts, engine_defaults = asyncio.run(_facts(Transport(engine)))
    defaults = merged(of_engine(engine_defaults), settings.config, settings.single)
    lines = _files(settings, "artifacts")
    wires = _files(settings, "wire") if settings.wire_log else None
    asked = _files(settings, "requests") if settings.requests else None
    claims = _claims(facts, settings.claim, defaults)
    sink = FileSink(lines, wires, facts, claims, engine.display, defaults, settings.sign_key, requests=asked)
    recorder = Recorder(sink, settings.on_full, capacity=settings.queue)
    route_asks = {route: asks(facts.fields.get(route, ()), settings.width, facts.max_logprobs) for route in ROUTES}
    proxy = Proxy(Upstream(engine.root), recorder, route_asks)
    with listen(settings.listen) as socket:
        host, port = socket.getsockname()[:2]
        started(
            RecordingStart(
                url=f"http://{host}:{port}",
                upstream=proxy.upstream.root,
                output=settings.output,
                on_full=proxy.words,
                recovered=tuple(p for files in (lines, wires, asked) if files is not None for p in files.recovered),
                unasked=tuple(route for route, asked in route_asks.items() if not asked.any),
                defaults=defaults,
            )
        )
        run(proxy, socket)
    return recorder.counts


async def _facts(transport: Transport) -> tuple[Facts, dict[str, float]]:
    """What the engine is, and what it tells about its default sampling."""
    async with transport:
        facts = await probe(transport)
        return facts, await default_sampling(transport, facts)


def _files(settings: RecordingSettings, name: str) -> RotatingLines:
    return RotatingLines(settings.output, name, max_bytes=settings.rotate_bytes, max_age_s=settings.rotate_s)


def _claims(facts: Facts, stated: StatedClaim, defaults: Defaults) -> ClaimFor:
    """Claims of requests: as stated, the model by its name in the request, ids that end a text also by the config."""
    whole = msgspec.structs.replace(stated, eos_ids=stated.eos_ids or defaults.eos_ids)

    def claim(model: str) -> Claim:
        return claim_of(facts, model, whole)

    return claim
