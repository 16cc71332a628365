"""What waits for the clients of each tenant."""

from __future__ import annotations

from services.edge.core.backlog import Backlog


class World:
    def __init__(self, **bounds: int) -> None:
        self.waiting: dict[str, int] = {}
        self.backlog: Backlog[str] = Backlog(bounds.get, self.waiting.__getitem__)

    def note(self, client: str, waiting: int, tenant: str = "a") -> bool:
        self.waiting[client] = waiting
        return self.backlog.note(client, tenant, waiting)


def test_a_tenant_is_over_by_the_sum_of_its_clients() -> None:
    world = World(a=100)
    assert [world.note("one", 60), world.note("two", 40), world.note("two", 41)] == [False, False, True]
    assert world.backlog.clients("a") == ["one", "two"]
    assert not world.note("other", 10**9, tenant="b")
    assert not world.backlog.over("b")


def test_what_was_read_since_counts_no_more() -> None:
    world = World(a=100)
    world.note("one", 90)
    world.waiting["one"] = 0
    assert not world.note("two", 20)
    assert world.backlog.clients("a") == ["two"]
    world.note("three", 90)
    assert world.backlog.over("a")
    world.waiting.update(two=0, three=0)
    assert not world.backlog.over("a")
    assert world.backlog.clients("a") == []


def test_a_client_that_left_counts_no_more_and_a_stranger_is_none() -> None:
    world = World(a=100)
    world.note("one", 60)
    world.note("two", 60)
    world.backlog.forget("two", "a")
    world.backlog.forget("two", "a")
    world.backlog.forget("nobody", "x")
    assert not world.backlog.over("a")
    world.backlog.forget("one", "a")
    assert (world.backlog.clients("a"), world.backlog.over("a")) == ([], False)
