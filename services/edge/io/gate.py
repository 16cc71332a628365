"""Who may use the edge, and what every request carries: identity, ids, trace, address."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import web

from services.edge.core import cache_control, credentials
from services.edge.interfaces import Dismissable
from services.edge.io.heartbeats import HeartbeatWheel
from services.edge.settings import EdgeSettings
from streamway.auth import Credentials, Identity, ShownStanding, Standing
from streamway.config.baggage import kept
from streamway.errors import InvalidArgument, PermissionDenied, StreamwayError
from streamway.runtime.ids import new_secret_id
from streamway.telemetry.context import RequestContext, begin, current
from streamway.tenancy.watching import TenancyWatch
from streamway.v1 import common_pb2

_log = structlog.get_logger("edge")
REQUEST_ID: Final = web.RequestKey("request_id", str)
_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_CACHE: Final = {
    "": common_pb2.CACHE_POLICY_UNSPECIFIED,
    "off": common_pb2.CACHE_POLICY_OFF,
    "exact": common_pb2.CACHE_POLICY_EXACT,
    "folded": common_pb2.CACHE_POLICY_FOLDED,
    "semantic": common_pb2.CACHE_POLICY_SEMANTIC,
}
RESTORE_ID: Final = "X-Session-Restore-ID"
_REPLAY: Final = {
    "": common_pb2.REPLAY_UNSPECIFIED,
    "burst": common_pb2.REPLAY_BURST,
    "paced": common_pb2.REPLAY_PACED,
}
_DURABILITY: Final = {
    "": common_pb2.DURABILITY_UNSPECIFIED,
    "off": common_pb2.DURABILITY_OFF,
    "relaxed": common_pb2.DURABILITY_RELAXED,
    "strict": common_pb2.DURABILITY_STRICT,
}
_ON_DISCONNECT: Final = {
    "cancel": common_pb2.ON_DISCONNECT_CANCEL,
    "grace": common_pb2.ON_DISCONNECT_GRACE,
}


@dataclass(frozen=True, slots=True)
class Caller:
    """An admitted client request."""

    standing: Standing
    address: str
    session: str
    context: RequestContext

    @property
    def identity(self) -> Identity:
        """Whom it was let in as."""
        return self.standing.identity


class _Watched:
    """One answer that runs, in the wheel."""

    __slots__ = ("_reading", "_standing")

    def __init__(self, standing: Standing, reading: Dismissable) -> None:
        self._standing = standing
        self._reading = reading

    def beat(self) -> None:
        """Looks whether its caller would still be let in."""
        try:
            self._standing.check()
        except StreamwayError as lost:
            _log.info("http_answer_dismissed", why=lost.name)
            self._reading.dismiss(lost)


class Gate:
    """Admits requests, and watches those that last. `traces`: the share of traces that begin here to be recorded;
    `baggage_keys`: what is kept of a client's baggage."""

    def __init__(
        self,
        settings: EdgeSettings,
        tenants: TenancyWatch,
        wheel: HeartbeatWheel,
        *,
        traces: float = 0.0,
        baggage_keys: tuple[str, ...] = (),
    ) -> None:
        self._tenants = tenants
        self._wheel = wheel
        self._traces = traces
        self._baggage_keys = baggage_keys
        self._credentials = Credentials(tenants)
        self._operators = frozenset(settings.operators)
        self._origins = frozenset(origin.rstrip("/").lower() for origin in settings.allowed_origins)
        self._proxies = tuple(settings.trusted_proxies)

    def admit(self, request: web.Request, browser_key: str = "") -> Caller:
        """The caller. Raises Unauthenticated, or HTTPForbidden for a page of a foreign origin.

        `browser_key` is a key that came as a WebSocket subprotocol; a header wins over it.
        """
        self.check_origin(request)
        headers = request.headers
        shown = credentials.bearer(headers.get("Authorization", "")) or browser_key
        standing = ShownStanding(self._credentials, shown)
        session = headers.get("x-session-id", "")
        if len(session) > 256:
            raise InvalidArgument("x-session-id", "at most 256 characters")
        baggage = kept(headers.get("baggage", ""), self._baggage_keys)
        tenant = standing.identity.tenant
        context = begin(headers.get("traceparent", ""), sampled=self._traces, tenant=tenant, baggage=baggage)
        current.set(context)
        return Caller(standing, self._address(request), session, context)

    def one_more(self, caller: Caller) -> RequestContext:
        """Of one of many requests on a connection: in the trace that the client gave it, else in one of its own."""
        before = caller.context
        context = begin(before.sender, sampled=self._traces, tenant=before.tenant, baggage=before.baggage)
        current.set(context)
        return context

    def admit_operator(self, request: web.Request) -> Caller:
        """The caller, who may see the whole mesh. Raises PermissionDenied too."""
        caller = self.admit(request)
        if not self.operates(caller):
            raise PermissionDenied.operators_only(caller.identity.tenant)
        return caller

    def operates(self, caller: Caller) -> bool:
        """Whether a caller may see the whole mesh: its tenant is named, or nobody has credentials, since all are on this host."""
        return caller.identity.tenant in self._operators or not self._credentials.required

    @contextmanager
    def watching(self, caller: Caller, reading: Dismissable) -> Iterator[None]:
        """As long as this lasts, the caller's credentials are looked at with each heartbeat, and where they count no more what it
        reads is dismissed with the reason."""
        watched = _Watched(caller.standing, reading)
        self._wheel.add(watched)
        try:
            yield
        finally:
            self._wheel.remove(watched)

    def allows(self, caller: Caller, model: str) -> bool:
        """Whether the caller's tenant may use a model. The router decides; this is for lists."""
        tenant = self._tenants.tenancy.tenant(caller.identity.tenant)
        return tenant is not None and tenant.allows(model)

    def check_origin(self, request: web.Request) -> None:
        """Raises HTTPForbidden when a page that is not ours calls through somebody's browser."""
        origin, host = request.headers.get("Origin", ""), request.headers.get("Host", "")
        if not credentials.origin_allowed(origin, host, self._origins, open_to_all=self._credentials.lets_anybody_in):
            raise web.HTTPForbidden(
                text=f"pages of {(origin or host)[:200]!r} may not use this edge; add the origin to "
                "STREAMWAY_EDGE_ALLOWED_ORIGINS"
            )

    def _address(self, request: web.Request) -> str:
        """The client's address: the peer's, or what a trusted proxy says about it (its last entry that is no proxy)."""
        address = request.remote or ""
        if not self._trusted(address):
            return address
        for hop in reversed(request.headers.get("X-Forwarded-For", "").split(",")):
            if hop.strip():
                address = hop.strip()[:64]
                if not self._trusted(address):
                    break
        return address

    def _trusted(self, address: str) -> bool:
        if not self._proxies:
            return False
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self._proxies)


def request_id(request: web.Request) -> str:
    """The id of this request: the client's own when it is harmless, otherwise a new one."""
    if REQUEST_ID not in request:
        given = request.headers.get("x-request-id", "")
        request[REQUEST_ID] = given if _ID.fullmatch(given) else new_secret_id()
    return request[REQUEST_ID]


def priority_of(request: web.Request) -> int:
    """The header `x-priority`, −128 … 127. Raises InvalidArgument."""
    text = request.headers.get("x-priority", "0")
    try:
        priority = int(text)
    except ValueError:
        priority = 1000
    if not -128 <= priority <= 127:
        raise InvalidArgument("x-priority", f"{text[:20]!r} is not a whole number from -128 to 127")
    return priority


def cache_policy_of(request: web.Request) -> common_pb2.CachePolicy.ValueType:
    """The header `x-streamway-cache`: "off", "exact", "folded" or "semantic". Raises InvalidArgument."""
    text = request.headers.get("x-streamway-cache", "")
    policy = _CACHE.get(text.strip().lower())
    if policy is None:
        raise InvalidArgument("x-streamway-cache", f"{text[:20]!r} is none of 'off', 'exact', 'folded' and 'semantic'")
    return policy


def cache_control_of(request: web.Request) -> common_pb2.CacheControl | None:
    """What the headers `Cache-Control` ask; None where that is nothing."""
    return cache_control.parse(",".join(request.headers.getall("Cache-Control", ())))


def replay_of(request: web.Request) -> common_pb2.Replay.ValueType:
    """The header `x-streamway-replay`: "burst" or "paced". Raises InvalidArgument."""
    text = request.headers.get("x-streamway-replay", "")
    replay = _REPLAY.get(text.strip().lower())
    if replay is None:
        raise InvalidArgument("x-streamway-replay", f"{text[:20]!r} is neither 'burst' nor 'paced'")
    return replay


def ask_cache(request: web.Request, wanted: common_pb2.GenerationRequest) -> None:
    """Puts into `wanted` what the headers say of the cache and the body has not. Raises InvalidArgument."""
    wanted.cache = wanted.cache or cache_policy_of(request)
    control = cache_control_of(request)
    if control is not None and not wanted.HasField("cache_control"):
        wanted.cache_control.CopyFrom(control)
    wanted.replay = wanted.replay or replay_of(request)


def durability_of(request: web.Request) -> common_pb2.Durability.ValueType:
    """The header `x-streamway-durability`: "off", "relaxed" or "strict". Raises InvalidArgument."""
    text = request.headers.get("x-streamway-durability", "")
    durability = _DURABILITY.get(text.strip().lower())
    if durability is None:
        raise InvalidArgument("x-streamway-durability", f"{text[:20]!r} is none of 'off', 'relaxed' and 'strict'")
    return durability


def on_disconnect_of(request: web.Request, default: str) -> common_pb2.OnDisconnect.ValueType:
    """The header `x-streamway-on-disconnect`: "cancel" or "grace". Raises InvalidArgument."""
    text = request.headers.get("x-streamway-on-disconnect", "") or default
    what = _ON_DISCONNECT.get(text.strip().lower())
    if what is None:
        raise InvalidArgument("x-streamway-on-disconnect", f"{text[:20]!r} is neither 'cancel' nor 'grace'")
    return what


def idempotency_key_of(request: web.Request) -> str:
    """The header `Idempotency-Key`; empty when there is none. Raises InvalidArgument."""
    key = request.headers.get("Idempotency-Key", "")
    if len(key.encode(errors="replace")) > 256:
        raise InvalidArgument("Idempotency-Key", "at most 256 bytes")
    # What is no UTF-8 came as lone surrogates, which protobuf cannot carry.
    return key if key.isascii() else key.encode(errors="replace").decode()


def restore_id_of(request: web.Request) -> str:
    """The header `X-Session-Restore-ID`; empty when there is none."""
    return request.headers.get(RESTORE_ID, "")[:64]
