from services.cache.core.trust import FIRST, Trust


def serves(trust: Trust, entry: str = "e") -> int:
    """How often it answers before it is compared."""
    count = 0
    while not trust.is_due(entry):
        trust.served(entry)
        count += 1
    return count


def test_an_entry_is_compared_before_it_has_answered_often_and_later_each_time_it_was_right():
    trust = Trust()
    seen = []
    for _ in range(4):
        seen.append(serves(trust))
        trust.compared("e", right=True)
    assert seen == [FIRST, 2 * FIRST, 4 * FIRST, 8 * FIRST]


def test_one_that_was_wrong_is_compared_each_time_until_it_was_right_as_often():
    trust = Trust()
    trust.compared("e", right=False)
    trust.compared("e", right=False)
    assert trust.is_due("e")
    trust.compared("e", right=True)
    assert trust.is_due("e")
    trust.compared("e", right=True)
    assert serves(trust) == FIRST
    assert not trust.is_due("another")


def test_trust_has_an_end_and_distrust_too():
    trust = Trust()
    for _ in range(100):
        trust.compared("good", right=True)
        trust.compared("bad", right=False)
    assert serves(trust, "good") == 32 * FIRST
    for _ in range(8):
        assert trust.is_due("bad")
        trust.compared("bad", right=True)
    assert not trust.is_due("bad")


def test_it_goes_on_where_another_was():
    one, other = Trust(), Trust()
    one.compared("bad", right=False)
    one.served("new")
    other.restore(one.kept())
    assert other.is_due("bad")
    assert serves(other, "new") == FIRST - 1


def test_numbers_that_nobody_wrote_do_no_harm():
    trust = Trust()
    trust.restore({"a": (10**9, -5), "b": (-(10**9), 0)})
    assert serves(trust, "a") == 32 * FIRST
    assert trust.is_due("b")
