"""What is known of the store."""

from __future__ import annotations

from services.cache.core.known import Known


def test_the_later_entry_of_a_key_stays_when_the_earlier_one_goes() -> None:
    known = Known()
    known.add(b"k", "old")
    known.add(b"k", "new")
    known.remove(b"k", "old")
    assert known.get(b"k") == "new"
    known.remove(b"k", "new")
    assert (known.get(b"k"), len(known)) == (None, 0)


def test_the_largest_tenant_is_the_one_with_most_bytes() -> None:
    known = Known()
    assert known.largest() is None
    known.holds("a", 5)
    known.holds("b", 7)
    assert (known.largest(), known.size_bytes, known.of("a")) == ("b", 12, 5)
    known.holds("b", 0)
    assert (known.largest(), known.of("b")) == ("a", 0)
