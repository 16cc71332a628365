"""Addresses of engines."""

from __future__ import annotations

import pytest

from services.inference_adapter.backends.openai_http.address import parse
from streamway.runtime.process import StartError


@pytest.mark.parametrize(
    ("url", "authority", "prefix", "shown"),
    [
        ("http://127.0.0.1:8000", "127.0.0.1:8000", "", "http://127.0.0.1:8000"),
        ("http://gpu/v1/", "gpu", "", "http://gpu"),
        ("http://[::1]:9/api/v1", "[::1]:9", "/api", "http://[::1]:9/api"),
        ("unix:/run/e.sock", "localhost", "", "unix:/run/e.sock"),
        ("unix:///run/e.sock", "localhost", "", "unix:/run/e.sock"),
    ],
)
def test_addresses_are_read(url: str, authority: str, prefix: str, shown: str) -> None:
    address = parse(url)
    assert (address.authority, address.prefix, str(address)) == (authority, prefix, shown)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "https://x:1",
        "http://",
        "http://x:99999",
        "http://u:p@x:1",
        "unix:e.sock",
        f"unix:/{'x' * 110}",
    ],
)
def test_other_addresses_stop_the_start(url: str) -> None:
    with pytest.raises(StartError):
        parse(url)
