"""From a URL to a ready Client: endpoint, transport, probe, dialect, tokenizer.

async with connect("http://127.0.0.1:8000", dialect="auto") as connection:
    call = await connection.client.call(request)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from logproof.client.client import Client
from logproof.client.probe import probe
from logproof.client.tokenizer import LocalTokenizer, ServerTokenizer, Tokenizer
from logproof.dialects.dialect import Dialect
from logproof.dialects.registry import fitting, get_dialect
from logproof.errors import AuthError, EndpointError, NoEngine, ServerFault, UsageError
from logproof.http.endpoint import AuthStyle, Endpoint, Timeouts, endpoint
from logproof.http.exchange import WireReply, WireRequest
from logproof.http.retry import RetryPolicy
from logproof.http.transport import Sender, Transport
from logproof.ir.facts import Facts

AUTH_STYLES: tuple[AuthStyle, ...] = ("bearer", "x-api-key", "x-goog-api-key")
"""How a key may travel, in the order in which an endpoint of an unknown kind is tried."""

BEARER_ENGINES = ("vllm", "sglang")
"""Engines that take a key as a bearer token alone, whatever wire they are asked in."""


PROBE_RETRY = RetryPolicy(attempts=3, base_s=0.25, cap_s=1.0)
"""Most patience with a question of the probe: a caller waits for it before anything else happens."""
PROBE_ATTEMPT_S = 20.0
"""Most seconds of one attempt at a question."""
PROBE_CONNECT_S = 5.0
"""Most seconds until the connection for a question stands."""

UNREACHED = frozenset({502, 503, 504})
"""Statuses by which a gateway says that there is no server behind it."""

Announce = Callable[[str], None]
"""Takes a line for the user: what a caller waits for."""

WrapSender = Callable[[Sender], Sender]
"""Puts something between a probe and its sender, a recorder for one."""


class Connection(msgspec.Struct, frozen=True):
    """An open way to one endpoint. model: served name that requests should carry."""

    client: Client
    endpoint: Endpoint
    facts: Facts
    transport: Transport
    tokenizer: Tokenizer | None
    model: str


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an endpoint. key_env: variable that holds the key. tokenizer: a local file or directory.

    concurrency: most requests in flight. drop: leaves that may be left out where the dialect refuses them.
    texts: whether texts of ids are filled in after lifting. facts: known already, so no probe is made.
    """

    dialect: str = "auto"
    model: str | None = None
    key: str | None = None
    key_env: str | None = None
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    retry: RetryPolicy = RetryPolicy()
    concurrency: int = 8
    drop: tuple[str, ...] = ()
    tokenizer: Path | None = None
    texts: bool = True
    facts: Facts | None = None


@asynccontextmanager
async def connect(
    url: str, options: Options | None = None, announce: Announce | None = None
) -> AsyncIterator[Connection]:
    """Open an endpoint.

    Raises UsageError for a bad URL, dialect, tokenizer or model, EndpointError where nothing answers.
    """
    options = options or Options()
    dialect = _named_dialect(options)
    local = LocalTokenizer(options.tokenizer) if options.tokenizer is not None else None
    facts, auth = await discover(url, options, announce)
    place = open_endpoint(url, options, auth)
    async with Transport(place, limit=options.concurrency, policy=options.retry) as transport:
        facts = with_version(facts, options.headers)
        dialect = dialect or best_dialect(facts)
        model = choose_model(options.model, facts)
        tokenizer = local or (ServerTokenizer(transport, model) if facts.tokenizer else None)
        client = Client(transport, dialect, facts, tokenizer=tokenizer if options.texts else None, drop=options.drop)
        yield Connection(client, place, facts, transport, tokenizer, model)


def _named_dialect(options: Options) -> Dialect | None:
    return get_dialect(options.dialect) if options.dialect != "auto" else None


async def discover(
    url: str, options: Options, announce: Announce | None = None, wrap: WrapSender = lambda sender: sender
) -> tuple[Facts, AuthStyle]:
    """Facts of an endpoint, and how it takes the key: as the dialect's own API does, or as a bearer token.

    vLLM, SGLang and many gateways serve every wire behind one check for a bearer token; which kind of key an
    endpoint takes, its answer to the probe shows. Raises AuthError where it takes none.
    """
    dialect = _named_dialect(options)
    styles = AUTH_STYLES if dialect is None else tuple(dict.fromkeys((dialect.auth, "bearer")))
    if options.facts is not None:
        return options.facts, "bearer" if options.facts.engine in BEARER_ENGINES else styles[0]
    refusals = []
    for auth in styles:
        place = open_endpoint(url, options, auth)
        async with open_probe_sender(place, options, announce) as sender:
            try:
                return await _probe_or_unknown(wrap(sender), must_tell=dialect is None), auth
            except AuthError as refused:
                refusals.append(refused)
        if place.key is None:
            break
    raise refusals[0]


def with_version(facts: Facts, headers: Mapping[str, str]) -> Facts:
    """Facts with the API version that the caller's headers ask for, if any: dialects decide leaves by it."""
    version = next((v for k, v in headers.items() if k.lower() == "anthropic-version"), None)
    return facts if version is None else msgspec.structs.replace(facts, api_version=version)


class _ProbeSender:
    """Sends the GETs of a probe one way, and what an engine must work on another."""

    def __init__(self, questions: Transport, requests: Transport) -> None:
        self._questions, self._requests = questions, requests

    async def send(self, request: WireRequest) -> WireReply:
        way = self._questions if request.method == "GET" else self._requests
        return await way.send(request)


@asynccontextmanager
async def open_probe_sender(
    place: Endpoint, options: Options, announce: Announce | None = None
) -> AsyncIterator[Sender]:
    """A sender for a probe: GETs with no more patience than PROBE_RETRY, requests as the options say."""
    attempts = min(options.retry.attempts, PROBE_RETRY.attempts)
    policy = msgspec.structs.replace(
        PROBE_RETRY, attempts=attempts, base_s=min(options.retry.base_s, PROBE_RETRY.base_s)
    )
    brief = msgspec.structs.replace(place, timeouts=_brief_timeouts(place.timeouts))
    round_ = 0

    def announce_retry(error: EndpointError, sends: int) -> None:
        """The questions go out together: of their retries, the first of each round is announced."""
        nonlocal round_
        if announce is not None and sends > round_:
            round_ = sends
            announce(f"asking {place.display} again, try {sends + 1} of {attempts}: {error.message}")

    async with (
        Transport(brief, policy=policy, on_retry=announce_retry) as questions,
        Transport(place, limit=options.concurrency, policy=options.retry) as requests,
    ):
        yield _ProbeSender(questions, requests)


def _brief_timeouts(limits: Timeouts) -> Timeouts:
    return Timeouts(
        connect=min(limits.connect or PROBE_CONNECT_S, PROBE_CONNECT_S),
        first_byte=min(limits.first_byte or PROBE_ATTEMPT_S, PROBE_ATTEMPT_S),
        idle=min(limits.idle or PROBE_ATTEMPT_S, PROBE_ATTEMPT_S),
        total=min(limits.total or PROBE_ATTEMPT_S, PROBE_ATTEMPT_S),
    )


async def _probe_or_unknown(sender: Sender, *, must_tell: bool) -> Facts:
    """Facts of the endpoint; a caller who names the dialect may face one that tells nothing about itself."""
    try:
        return await probe(sender)
    except (NoEngine, ServerFault) as error:
        if must_tell or (isinstance(error, ServerFault) and error.status in UNREACHED):
            raise
        return Facts()


def open_endpoint(url: str, options: Options, auth: AuthStyle) -> Endpoint:
    """The checked endpoint of a URL; see http/endpoint.py."""
    return endpoint(
        url, key=options.key, key_env=options.key_env, headers=options.headers, auth=auth, timeouts=options.timeouts
    )


def best_dialect(facts: Facts) -> Dialect:
    """The dialect of `auto`. Raises UsageError where the probe did not recognise the endpoint."""
    ids = fitting(facts)
    if not ids:
        raise UsageError("the probe cannot tell what this endpoint speaks", hint="name one with --dialect")
    return get_dialect(ids[0])


def choose_model(name: str | None, facts: Facts) -> str:
    """The served name to ask for: the caller's, or the only one that the endpoint serves.

    Raises UsageError for a name that the endpoint does not list, and where several are served and none named.
    """
    if name is not None:
        if facts.models and name not in facts.models:
            raise UsageError(f"this endpoint does not serve {name!r}", hint=f"it serves: {_named(facts)}")
        return name
    if len(facts.models) == 1:
        return facts.models[0]
    raise UsageError(
        "name the model to ask for (--model-name)", hint=f"it serves: {_named(facts)}" if facts.models else None
    )


def _named(facts: Facts) -> str:
    return ", ".join(facts.models[:8]) + (", …" if len(facts.models) > 8 else "")
