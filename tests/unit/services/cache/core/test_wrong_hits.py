import pytest

from services.cache.core.wrong_hits import Consequence, WrongHits


def test_a_wrong_answer_raises_the_floor_of_its_entry():
    wrong = WrongHits()
    assert wrong.floor("e") is None
    assert wrong.report("e", b"asked", b"stored", 0.93) == Consequence(pytest.approx(0.95), False)
    assert wrong.floor("e") == pytest.approx(0.95)
    assert wrong.floor("other") is None
    assert not wrong.is_denied(b"asked", b"stored")


def test_the_second_evicts_it_and_denies_both_pairs_either_way_round():
    wrong = WrongHits()
    wrong.report("e", b"one", b"stored", 0.93)
    assert wrong.report("e", b"two", b"stored", 0.91).evict
    assert wrong.floor("e") is None
    for asked in (b"one", b"two"):
        assert wrong.is_denied(asked, b"stored")
        assert wrong.is_denied(b"stored", asked)
    assert not wrong.is_denied(b"three", b"stored")


def test_the_same_question_reported_twice_is_one_wrong_answer():
    wrong = WrongHits()
    wrong.report("e", b"one", b"stored", 0.93)
    assert not wrong.report("e", b"one", b"stored", 0.96).evict
    assert wrong.floor("e") == pytest.approx(0.98)


def test_what_is_evicted_for_another_reason_is_forgotten():
    wrong = WrongHits()
    wrong.report("e", b"one", b"stored", 0.93)
    wrong.forget("e")
    wrong.forget("e")
    assert wrong.floor("e") is None
    assert not wrong.report("e", b"two", b"stored", 0.93).evict


def test_both_tables_are_bounded_and_the_longest_unused_goes():
    wrong = WrongHits(most_entries=2, most_pairs=3)
    for entry in ("a", "b", "c"):
        wrong.report(entry, b"x", b"s", 0.9)
    assert [wrong.floor(entry) is None for entry in ("a", "b", "c")] == [True, False, False]
    for asked in (b"1", b"2"):
        wrong.report("d", asked, b"t", 0.9)
    assert wrong.is_denied(b"1", b"t")  # used just now, so the other one goes
    wrong.report("c", b"3", b"s", 0.9)
    assert [
        wrong.is_denied(asked, stored) for asked, stored in ((b"1", b"t"), (b"2", b"t"), (b"x", b"s"), (b"3", b"s"))
    ] == [
        True,
        False,
        True,
        True,
    ]
