"""Names and addresses that one line of settings gives to many copies of a service: `{hostname}` and `{ip}`.

Containers of one kind share their settings, and no two may have the same name in the mesh or send others to the same address.
"""

from __future__ import annotations

import socket
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from streamway.runtime.address import is_loopback

HOSTNAME: Final = "{hostname}"
IP: Final = "{ip}"


def filled(text: Any) -> Any:
    """`text` with `{hostname}` as this machine's name and `{ip}` as the address of that name, IPv6 in brackets.

    Raises ValueError where that name has no address which others could use.
    """
    if not isinstance(text, str):
        return text
    if HOSTNAME in text:
        text = text.replace(HOSTNAME, socket.gethostname())
    if IP in text:
        text = text.replace(IP, _own_address())
    return text


def _own_address() -> str:
    name = socket.gethostname()
    try:
        found = [str(row[4][0]) for row in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        found = []
    address = next((each for each in found if not is_loopback(each)), None)
    if address is None:
        raise ValueError(f"{IP} cannot be filled in: this machine's name, {name!r}, has no address that others could use;"
                         " write the address itself")  # fmt: skip
    return f"[{address}]" if ":" in address else address


FilledText = Annotated[str, BeforeValidator(filled)]
