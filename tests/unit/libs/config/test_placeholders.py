"""One line of settings names many copies of a service."""

from __future__ import annotations

import socket

import pytest

from services.cache.settings import CacheSettings
from services.inference_adapter.settings import AdapterSettings
from services.router.settings import RouterSettings
from streamway.config.placeholders import filled


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "c0ffee")

    def lookup(name: str, port: object, **_: object) -> list[tuple[object, ...]]:
        assert name == "c0ffee"
        if not addresses:
            raise socket.gaierror("no such name")
        return [(0, 0, 0, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def test_every_kind_of_service_has_its_own_name_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "127.0.1.1", "172.18.0.4")
    monkeypatch.setenv("STREAMWAY_ADAPTER_WORKER", "adapter-{hostname}")
    monkeypatch.setenv("STREAMWAY_ADAPTER_ADVERTISE", "{ip}:7010")
    monkeypatch.setenv("STREAMWAY_ROUTER_ID", "router-{hostname}")
    monkeypatch.setenv("STREAMWAY_ROUTER_ADVERTISE", "{hostname}:7001")
    monkeypatch.setenv("STREAMWAY_CACHE_NODE", "cache-{hostname}")
    monkeypatch.setenv("STREAMWAY_CACHE_ADVERTISE", "{ip}:7002")
    adapter, router, cache = AdapterSettings(), RouterSettings(), CacheSettings()
    assert (adapter.worker, adapter.advertise) == ("adapter-c0ffee", "172.18.0.4:7010"), "loopback is nobody else's"
    assert (router.id, router.advertise) == ("router-c0ffee", "c0ffee:7001")
    assert (cache.node, cache.advertise) == ("cache-c0ffee", "172.18.0.4:7002")


def test_an_ipv6_address_is_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "fd00::4")
    assert filled("{ip}:7010") == "[fd00::4]:7010"


@pytest.mark.parametrize("addresses", [(), ("127.0.0.1",), ("::1", "127.0.1.1")])
def test_a_machine_that_others_cannot_reach_by_its_name_says_so(monkeypatch: pytest.MonkeyPatch, addresses) -> None:
    resolving(monkeypatch, *addresses)
    with pytest.raises(ValueError, match="'c0ffee', has no address that others could use; write the address itself"):
        filled("{ip}:7010")


def test_other_text_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    assert filled("10.0.0.5:7010") == "10.0.0.5:7010"
    assert filled(7) == 7
