"""What an engine says of itself: its models, its size, and which row of the engines' table it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from services.inference_adapter.backends.openai_http import metrics
from services.inference_adapter.backends.openai_http.profiles import Profile, recognise
from services.inference_adapter.core.capabilities import Capabilities
from services.inference_adapter.interfaces import EngineModel
from streamway.errors import EngineFailed

# Status and body of a small document; raises EngineFailed.
Get = Callable[[str], Awaitable[tuple[int, bytes]]]


class _Listed(msgspec.Struct):
    id: str
    owned_by: str | None = None
    max_model_len: int | None = None  # vLLM
    parent: str | None = None  # vLLM: what a LoRA adapter, listed as a model, belongs to
    meta: dict[str, Any] | None = None  # llama.cpp


class _ModelList(msgspec.Struct):
    data: tuple[_Listed, ...]


@dataclass(frozen=True, slots=True)
class Models:
    """A list of models. `adapters` are those of them that are LoRA adapters of others."""

    all: tuple[EngineModel, ...]
    adapters: tuple[str, ...]
    owned_by: str


def read_models(status: int, body: bytes, worker: str) -> Models:
    """The answer to GET /v1/models. Raises EngineFailed."""
    if status != 200:
        raise EngineFailed(worker, f"GET /v1/models answered {status}")
    try:
        listed = msgspec.json.decode(body, type=_ModelList).data
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise EngineFailed(worker, "GET /v1/models did not give a list of models") from None
    if not listed:
        raise EngineFailed(worker, "it serves no model")
    return Models(
        tuple(EngineModel(one.id, _context_of(one)) for one in listed),
        tuple(one.id for one in listed if one.parent),
        listed[0].owned_by or "",
    )


async def discover(get: Get, models: Models, expected: Profile | None) -> tuple[Profile, Capabilities, bool]:
    """The engine's row, what is known without trying, and whether its metrics tell its load.

    `expected`: the row for an engine whose kind the settings have named.
    """
    page = await _text(get, "/metrics")
    profile = expected or recognise(models.owned_by, metrics.names(page))
    blocks, block_tokens = metrics.kv_blocks(page)
    version = ""
    if profile.version is not None:
        path, key = profile.version
        version = str(_object(await _text(get, path)).get(key) or "")[:100]
    adapters = models.adapters
    if profile.adapters:
        adapters = tuple(_adapter(row) for row in _list(await _text(get, profile.adapters)) if isinstance(row, dict))
    known = Capabilities(profile.can, profile.cannot, profile.name, version, blocks, block_tokens, adapters)
    return profile, known, metrics.read(page) is not None


def _adapter(row: dict[str, Any]) -> str:
    """The name of an adapter of llama.cpp, which names its file."""
    return str(row.get("path") or "").rpartition("/")[2].removesuffix(".gguf")


async def _text(get: Get, path: str) -> bytes:
    """A page, or nothing where there is none."""
    try:
        status, page = await get(path)
    except EngineFailed:
        return b""
    return page if status == 200 else b""


def _object(page: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(page, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _list(page: bytes) -> list[Any]:
    try:
        return msgspec.json.decode(page, type=list[Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _context_of(listed: _Listed) -> int:
    context = listed.max_model_len or (listed.meta or {}).get("n_ctx") or 0
    return context if isinstance(context, int) and context > 0 else 0
