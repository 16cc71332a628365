"""Network addresses as text."""

from __future__ import annotations


def host_port(host: str, port: int) -> str:
    """ "host:port", with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
