"""What kept conversations take in a router's memory, and what a turn costs there, against plain strings in a real Valkey.

`python -m benchmarks.contexts [SESSIONS [BYTES [DICTIONARY …]]]`: without numbers first what each codec and each size of a
dictionary saves by the length of a conversation, and how long it takes; then SESSIONS conversations of BYTES in the mean (0.5
… 1.5 of it), each with one more turn: read, and written with the turn, without a dictionary and with one (or with those
sizes). 40 tenants; the sessions of each begin with the same system message of 2 kB. The text is the prose and the code of
Python's language reference, as pydoc has it. A dictionary is made of 64 conversations over every other topic of it, what is
packed is over the topics between these: it has seen the kind of text and not the text. Valkey gets the same conversations as
plain strings over a unix socket, GET and SET of the whole, as a client of its own would keep them. Quote the ratios: machines
differ.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import psutil
from lz4.block import compress, decompress
from redis import Redis

from services.router.core import context_codec as codec
from services.router.core.context_dictionary import LEARNED_FROM, trained
from services.router.core.context_table import ContextTable, Name
from tests.support.valkey_server import ValkeyServer

SYSTEM_BYTES = 2_000
TURN_BYTES = 600
TENANTS = 40
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
_SAMPLES = 20
_TOTAL_LIMIT = 4_000_000_000

Packed = Callable[[bytes], bytes]


class Prose:
    """Conversations out of paragraphs, the same for one seed, of one half of the topics."""

    def __init__(self, seed: int, half: int = 1) -> None:
        self._random = random.Random(seed)
        self._paragraphs = [
            paragraph
            for name in sorted(topics)[half::2]
            for paragraph in str(topics[name]).split("\n\n")
            if 60 < len(paragraph) < 1_500
        ]

    def message(self, role: str, size: int) -> bytes:
        """One message of about a size, with its comma."""
        text = ""
        while len(text) < size:
            text += self._random.choice(self._paragraphs) + "\n"
        return json.dumps({"role": role, "content": text[:size]}, ensure_ascii=False).encode() + b","

    def turns(self, size: int) -> bytes:
        """Questions and answers of a size together; nothing is repeated but what the source repeats."""
        text, asks = b"", True
        while len(text) < size:
            text += self.message("user" if asks else "assistant", self._random.choice((80, 200, 600, 1_200)))
            asks = not asks
        return text


def _zlib(raw: bytes) -> bytes:
    return zlib.compress(raw, 6)


def _lz4(raw: bytes) -> bytes:
    made: bytes = compress(raw)
    return made


def _hc(raw: bytes) -> bytes:
    made: bytes = compress(raw, mode="high_compression", compression=9)
    return made


def segments_of(opening: bytes, turns: bytes, dictionary: bytes = b"") -> list[bytes]:
    """A conversation as turn after turn has made it: segments of 8 kB."""
    made, before = [codec.pack(opening, opening=True, dictionary=dictionary)] if opening else [], opening
    for at in range(0, len(turns), codec.OPEN_BYTES):
        piece = turns[at : at + codec.OPEN_BYTES]
        made.append(codec.pack(piece, before, dictionary=dictionary))
        before += piece
    return made


def dictionary_of(size_bytes: int) -> bytes:
    """Of other topics."""
    prose = Prose(7, half=0)
    return trained([prose.turns(10_000) for _ in range(LEARNED_FROM)], size_bytes)


def dictionaries() -> None:
    """Saved % by the size of the dictionary, and what making it and packing with it take."""
    print(
        "\n| dictionary | made in s of CPU | "
        + " | ".join(f"{size:,}" for size in SIZES)
        + " | µs at 10,000: pack, unpack |"
    )
    print("|---|---|" + "---|" * len(SIZES) + "---|")
    for kib in (0, 16, 32, 48, 64):
        began = time.process_time()
        made = dictionary_of(kib * 1024) if kib else b""
        row = [f"{len(made):,}", f"{time.process_time() - began:.1f}"]
        known, times = {codec.name_of(made): made}, ""
        for size in SIZES:
            prose = Prose(size)
            whole = [prose.turns(size)[:size] for _ in range(_SAMPLES)]
            kept, pack_us = _timed(partial(segments_of, b"", dictionary=made), whole)
            texts, unpack_us = _timed(partial(codec.unpack, limit_bytes=_TOTAL_LIMIT, dictionaries=known), kept)
            assert [b"".join(each) for each in texts] == whole
            row.append(_saved(sum(map(len, whole)), sum(len(b"".join(each)) for each in kept)))
            times = f"{pack_us:,.0f}, {unpack_us:,.0f}" if size == 10_000 else times
        print("| " + " | ".join([*row, times]) + " |", flush=True)


def codecs() -> None:
    """Saved %, and µs to pack and to unpack, by length."""
    print(
        "| bytes | LZ4 | LZ4-HC | in segments, as kept | as kept, 2 kB of it shared | zlib 6 | µs: pack, unpack as kept | zlib |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for size in SIZES:
        prose = Prose(size)
        samples = [(prose.message("system", SYSTEM_BYTES), prose.turns(size)) for _ in range(_SAMPLES)]
        whole = [turns[:size] for _, turns in samples]
        row = [f"{size:,}"]
        row += [f"{_saved(sum(map(len, whole)), sum(len(packed(raw)) for raw in whole))}" for packed in (_lz4, _hc)]
        kept, pack_us = _timed(lambda raw: segments_of(b"", raw), whole)
        texts, unpack_us = _timed(lambda made: codec.unpack(made, _TOTAL_LIMIT), kept)
        assert [b"".join(each) for each in texts] == whole
        row.append(_saved(sum(map(len, whole)), sum(len(b"".join(made)) for made in kept)))
        shared = [segments_of(opening, turns[: max(0, size - SYSTEM_BYTES)])[1:] for opening, turns in samples]
        row.append(_saved(size * _SAMPLES, sum(len(b"".join(made)) for made in shared)) if size > SYSTEM_BYTES else "–")
        packed, zlib_pack_us = _timed(_zlib, whole)
        _, zlib_unpack_us = _timed(zlib.decompress, packed)
        row.append(_saved(sum(map(len, whole)), sum(map(len, packed))))
        row += [f"{pack_us:,.0f}, {unpack_us:,.0f}", f"{zlib_pack_us:,.0f}, {zlib_unpack_us:,.0f}"]
        print("| " + " | ".join(row) + " |", flush=True)
    assert decompress(_lz4(whole[0])) == whole[0]


def table_and_valkey(sessions: int, mean_bytes: int, dictionary_bytes: int) -> None:
    """Bytes and time of both, one after the other, so that neither is in the other's way."""
    made = ContextTable(sessions, 1 << 40, lambda _: None, lambda _: None)
    dictionary = dictionary_of(dictionary_bytes) if dictionary_bytes else b""
    known = {codec.name_of(dictionary): dictionary}
    process, shape = psutil.Process(), random.Random(sessions)
    prose = Prose(1)
    pool = [prose.turns(mean_bytes * 3 // 2) for _ in range(200)]
    openings = [prose.message("system", SYSTEM_BYTES) for _ in range(TENANTS)]
    turn = prose.message("user", 150) + prose.message("assistant", TURN_BYTES - 150)
    lengths = [shape.randint(mean_bytes // 2, mean_bytes * 3 // 2) for _ in range(sessions)]
    names = [Name(f"t{number % TENANTS}", f"{number:032x}") for number in range(sessions)]

    def conversation(number: int) -> tuple[bytes, bytes]:
        opening, mine = openings[number % TENANTS], pool[number % len(pool)]
        # No two begin alike behind their system message.
        at = number * 37 % 1000
        turns = mine[at : at + max(0, lengths[number] - len(opening))]
        return opening, turns

    before_rss, began = process.memory_info().rss, time.perf_counter()
    for number, name in enumerate(names):
        made.put(name, "v0", segments_of(*conversation(number), dictionary), 0.0)
    filled_s = time.perf_counter() - began
    began = time.perf_counter()
    for name in names:
        segments = made.get(name, 10.0) or []
        texts = codec.unpack(segments, _TOTAL_LIMIT, known)
        anew = len(segments) > 1 and len(texts[-1]) < codec.OPEN_BYTES
        front = b"".join(texts[:-1] if anew else texts)
        segment = codec.pack((texts[-1] if anew else b"") + turn, front, dictionary=dictionary)
        assert made.extend(name, "v0", "v1", segment, 10.0, anew=anew)
    turn_ms = (time.perf_counter() - began) * 1000 / sessions
    began = time.perf_counter()
    for name in names:
        codec.unpack(made.get(name, 20.0) or [], _TOTAL_LIMIT, known)
    read_ms = (time.perf_counter() - began) * 1000 / sessions
    rss, packed, raw = process.memory_info().rss - before_rss, made.used_bytes, made.raw_bytes
    openings_raw = sum(len(openings[number % TENANTS]) for number in range(sessions))
    sent = raw  # every session's opening counts: that is what a client would have sent
    with tempfile.TemporaryDirectory() as folder:
        server = ValkeyServer(Path(folder))
        try:
            client: Any = Redis.from_url(server.url)
            empty = client.info("memory")["used_memory"]
            for number, name in enumerate(names):
                client.set(name.digest, b"".join(conversation(number)))
            began = time.perf_counter()
            for name in names:
                client.set(name.digest, client.get(name.digest) + turn)
            valkey_turn_ms = (time.perf_counter() - began) * 1000 / sessions
            began = time.perf_counter()
            for name in names:
                client.get(name.digest)
            valkey_read_ms = (time.perf_counter() - began) * 1000 / sessions
            valkey = client.info("memory")["used_memory"] - empty
            client.close()
        finally:
            server.stop()
    print(
        f"\n{sessions:,} sessions, {sent / sessions:,.0f} bytes in the mean with the turn"
        f", a dictionary of {len(dictionary):,}"
        f" ({openings_raw / sessions:,.0f} of them system message), {filled_s:.0f} s to fill\n"
    )
    print("| | router's table | plain Valkey strings | ratio |")
    print("|---|---|---|---|")
    print(f"| MB | {packed / 1e6:,.1f} | {valkey / 1e6:,.1f} | 1 / {valkey / packed:.1f} |")
    print(f"| MB of the process | {rss / 1e6:,.1f} | – | 1 / {valkey / rss:.1f} |")
    print(f"| saved of what is sent | {_saved(sent, packed)} | {_saved(sent, valkey)} | |")
    print(f"| ms, a turn | {turn_ms:.3f} | {valkey_turn_ms:.3f} | 1 / {valkey_turn_ms / turn_ms:.2f} |")
    print(f"| ms, a read | {read_ms:.3f} | {valkey_read_ms:.3f} | 1 / {valkey_read_ms / read_ms:.2f} |", flush=True)


def _timed(work: Callable[[Any], Any], inputs: list[Any]) -> tuple[list[Any], float]:
    """What it gives, and µs for each."""
    began = time.perf_counter()
    given = [work(each) for each in inputs]
    return given, (time.perf_counter() - began) * 1e6 / len(inputs)


def _saved(raw: int, packed: int) -> str:
    return f"{100 * (1 - packed / raw):.0f} %"


if __name__ == "__main__":
    wanted = [int(each) for each in sys.argv[1:]]
    if len(wanted) < 1:
        codecs()
        dictionaries()
    for size in wanted[2:] or (0, 49_152):
        table_and_valkey((*wanted[:1], 10_000)[0], (*wanted[1:2], 10_000)[0], size)
