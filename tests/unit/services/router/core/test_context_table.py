"""The table of contexts: its bounds, and who makes room."""

from __future__ import annotations

from collections import Counter

from services.router.core.context_blocks import BLOCK_BYTES
from services.router.core.context_codec import pack
from services.router.core.context_table import ContextTable, Name


def _noise(seed: int, size: int) -> bytes:
    """Bytes that do not compress."""
    value, made = seed * 2_654_435_761 + 1, bytearray()
    while len(made) < size:
        value = (value * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        made += value.to_bytes(8, "little")
    return bytes(made[:size])


def _name(number: int, tenant: str = "t") -> Name:
    return Name(tenant, f"{number:032x}")


class _World:
    def __init__(self, most: int = 1000, budget: int = 1_000_000, bound: int | None = None) -> None:
        self.why: Counter[str] = Counter()
        self.table = ContextTable(most, budget, lambda _: bound, lambda why: self.why.update([why]))

    def put(self, number: int, now: float, size: int = 1000, tenant: str = "t") -> None:
        self.table.put(_name(number, tenant), f"v{number}", [pack(_noise(number, size))], now)


def test_a_context_comes_back_as_it_was_put_and_as_it_grew() -> None:
    table = _World().table
    first, second, third = pack(_noise(1, 3000)), pack(_noise(2, 500)), pack(_noise(3, 900))
    table.put(_name(1), "v1", [first], 0)
    assert table.extend(_name(1), "v1", "v2", second, 1, anew=False)
    assert table.get(_name(1), 2) == [first, second]
    assert table.extend(_name(1), "v2", "v3", third, 3, anew=True)
    assert table.get(_name(1), 4) == [first, third]
    assert table.version(_name(1)) == "v3"
    assert table.raw_bytes == 3900


def test_a_lower_budget_holds_at_once() -> None:
    world = _World(budget=100 * BLOCK_BYTES)
    for number in range(40):
        world.put(number, float(number))
    world.table.bound(20 * BLOCK_BYTES, 100)
    assert world.table.used_bytes <= 16 * BLOCK_BYTES
    assert set(world.why) == {"budget"}


def test_before_memory_is_full_the_largest_idle_ones_go_and_no_others() -> None:
    world = _World()
    world.put(1, 0, size=500)
    world.put(2, 0, size=20_000)
    world.put(3, 0, size=30_000)
    world.put(4, 0, size=40_000)
    world.put(5, 100, size=50_000)
    world.table.lease(_name(4))
    # The largest was used 100 s ago, the next is in use.
    assert world.table.give_up_largest(0.3, 200) == 2
    assert [_name(number) in world.table for number in range(1, 6)] == [True, False, False, True, True]
    assert world.why == {"memory": 2}
    assert world.table.give_up_largest(0.0, 1000) == 0


def test_a_turn_of_another_version_is_not_added() -> None:
    table = _World().table
    table.put(_name(1), "v1", [pack(b"x" * 300)], 0)
    assert not table.extend(_name(1), "v0", "v2", pack(b"y" * 300), 1, anew=False)
    assert not table.extend(_name(2), "v1", "v2", pack(b"y" * 300), 1, anew=False)
    assert table.version(_name(1)) == "v1"


def test_sessions_of_one_tenant_share_their_system_messages() -> None:
    table = _World().table
    opening = pack(_noise(0, 20 * BLOCK_BYTES), opening=True)
    for number in range(10):
        table.put(_name(number), "v", [opening, pack(_noise(number + 1, 100))], 0)
    assert table.used_bytes == (21 + 10) * BLOCK_BYTES
    table.put(_name(0, "other"), "v", [opening, pack(_noise(9, 100))], 0)
    assert table.used_bytes == 2 * 21 * BLOCK_BYTES + 11 * BLOCK_BYTES, "no other tenant shares them"
    for number in range(10):
        assert table.get(_name(number), 1) == [opening, pack(_noise(number + 1, 100))]
        table.drop(_name(number))
    assert table.tenant_bytes("t") == 0
    assert table.used_bytes == 22 * BLOCK_BYTES


def test_another_tenants_context_of_the_same_id_is_unknown() -> None:
    world = _World()
    world.put(1, 0, tenant="a")
    assert world.table.get(_name(1, "b"), 1) is None
    assert world.table.version(_name(1, "b")) == ""


def test_the_table_holds_no_more_sessions_than_it_may() -> None:
    world = _World(most=5)
    for number in range(9):
        world.put(number, float(number * 10))
    assert len(world.table) == 5
    assert [number for number in range(9) if _name(number) in world.table] == [4, 5, 6, 7, 8]
    assert world.why == {"sessions": 4}


def test_over_nine_tenths_of_the_budget_it_goes_down_to_eight() -> None:
    world = _World(budget=100 * BLOCK_BYTES)
    for number in range(90):
        world.put(number, float(number * 10), 900)
    assert world.table.used_bytes == 90 * BLOCK_BYTES
    world.put(90, 1000.0, 900)
    assert world.table.used_bytes == 80 * BLOCK_BYTES
    assert world.why == {"budget": 11}


def test_a_tenant_over_its_bound_loses_its_own_and_nobody_elses() -> None:
    world = _World(bound=20 * BLOCK_BYTES)
    for number in range(10):
        world.put(number, 0.0, 900, tenant="quiet")
    for number in range(40):
        world.put(number, 10.0 + number * 10, 900, tenant="loud")
    assert world.table.tenant_bytes("quiet") == 10 * BLOCK_BYTES
    assert world.table.tenant_bytes("loud") <= 18 * BLOCK_BYTES
    assert set(world.why) == {"tenant"}


def test_what_a_running_turn_has_leased_is_never_given_up() -> None:
    world = _World(most=3, budget=10 * BLOCK_BYTES, bound=10 * BLOCK_BYTES)
    world.put(0, 0.0, 900)
    world.table.lease(_name(0))
    world.table.lease(_name(0))
    world.table.release(_name(0))
    for number in range(1, 30):
        world.put(number, number * 10.0, 900)
    world.table.sweep(10_000.0)
    assert _name(0) in world.table
    world.table.release(_name(0))
    world.table.sweep(10_000.0)
    assert _name(0) not in world.table


def test_a_sweep_takes_what_was_used_once_and_is_idle() -> None:
    world = _World()
    world.put(1, 0.0)
    world.put(2, 0.0)
    world.table.get(_name(2), 50.0)
    world.put(3, 100.0)
    assert world.table.sweep(119.0) == 0
    assert world.table.sweep(121.0) == 1
    assert _name(1) not in world.table
    assert world.table.sweep(10_000.0) == 1
    assert _name(2) in world.table, "it was used twice"
    assert world.why == {"idle": 2}


def test_a_context_larger_than_the_budget_is_not_kept() -> None:
    world = _World(budget=10 * BLOCK_BYTES)
    world.put(1, 0.0)
    world.put(1, 1.0, 9 * BLOCK_BYTES)
    assert _name(1) not in world.table
    assert world.table.used_bytes == 0
