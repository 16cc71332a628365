"""Whatever is put, grown, read, leased, dropped and swept in whichever order: what is there is what was put, and bounds hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.router.core.context_blocks import BLOCK_BYTES, Blocks, Chain
from services.router.core.context_codec import OPEN_BYTES, pack, split, unpack
from services.router.core.context_table import ContextTable, Name

_BUDGET = 40 * BLOCK_BYTES
_BOUND = 30 * BLOCK_BYTES
_texts = (
    st.binary(max_size=3000) | st.text(max_size=800).map(str.encode) | st.integers(1, 4000).map(lambda n: b"ab c" * n)
)


@given(st.lists(_texts, max_size=8))
def test_every_row_of_texts_comes_back(texts: list[bytes]) -> None:
    segments: list[bytes] = []
    before = b""
    for text in texts:
        segments.append(pack(text, before))
        before += text
    assert unpack(split(b"".join(segments)), len(before)) == texts


@given(st.binary(max_size=200), st.integers(0, 30), st.binary(min_size=1, max_size=3))
def test_no_bytes_at_all_crash_the_reader(tail: bytes, cut: int, noise: bytes) -> None:
    good = pack(b"hello " * 100)
    for data in (tail, good[:cut] + tail, good[:cut] + noise + good[cut + len(noise) :]):
        try:
            unpack(split(data), 10_000)
        except ValueError:
            continue


@given(st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=3000), st.integers(0, 5000)), max_size=30))
def test_chains_never_mix_and_blocks_are_counted(steps: list[tuple[int, bytes, int]]) -> None:
    blocks, chains, model = Blocks(), [Chain() for _ in range(4)], [b""] * 4
    for which, content, length in steps:
        if content:
            blocks.append(chains[which], content)
            model[which] += content
        else:
            blocks.shorten(chains[which], length)
            model[which] = model[which][:length]
        assert [blocks.read(chain) for chain in chains] == model
        assert blocks.used_bytes == sum(-(-len(text) // BLOCK_BYTES) * BLOCK_BYTES for text in model)


_steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "grow", "get", "drop", "lease", "release", "sweep"]),
        st.sampled_from([Name(tenant, digest) for tenant in "ab" for digest in "xyz"]),
        st.integers(1, 12_000),
        st.floats(0, 200),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(_steps)
def test_the_table_is_right_or_empty_handed_and_within_its_bounds(steps: list[tuple[str, Name, int, float]]) -> None:
    table = ContextTable(4, _BUDGET, lambda _: _BOUND, lambda _: None)
    model: dict[Name, tuple[str, list[bytes], list[bytes]]] = {}
    leased: dict[Name, int] = {}
    now, number = 0.0, 0
    for what, name, size, wait in steps:
        now, number = now + wait, number + 1
        raw = (f"{name.tenant}{name.digest}{number}-".encode() * size)[:size]
        if what == "put":
            segments = [pack(raw, opening=True), pack(raw[:300], raw)] if size % 2 else [pack(raw)]
            table.put(name, str(number), segments, now)
            model[name] = (str(number), segments, [raw, raw[:300]] if size % 2 else [raw])
        elif what == "grow" and name in model:
            version, segments, texts = model[name]
            anew = len(texts) > 1 and len(texts[-1]) < OPEN_BYTES
            kept = texts[:-1] if anew else texts
            added = (texts[-1] if anew else b"") + raw
            segment = pack(added, b"".join(kept))
            there = name in table
            assert table.extend(name, version, str(number), segment, now, anew=anew) == there
            if there:
                model[name] = (str(number), [*segments[: len(kept)], segment], [*kept, added])
        elif what == "drop":
            table.drop(name)
            model.pop(name, None)
        elif what == "lease" and name in table:
            table.lease(name)
            leased[name] = leased.get(name, 0) + 1
        elif what == "release" and leased.get(name):
            table.release(name)
            leased[name] -= 1
        elif what == "sweep":
            before = {each for each in model if each in table and leased.get(each)}
            table.sweep(now)
            assert all(each in table for each in before)
        found = table.get(name, now)
        if found is not None:
            version, segments, texts = model[name]
            assert (table.version(name), found) == (version, segments)
            assert unpack(found, 1_000_000) == texts
        if not leased:
            # Released, it stays over its bound until the next turn comes in.
            assert len(table) <= 4
            assert table.used_bytes <= _BUDGET * 0.9 + 1
            assert all(table.tenant_bytes(tenant) <= _BOUND * 0.9 + 1 for tenant in "ab")
        assert table.used_bytes == table.tenant_bytes("a") + table.tenant_bytes("b")
    for name in list(model):
        table.drop(name)
    assert (len(table), table.used_bytes, table.raw_bytes) == (0, 0, 0)
