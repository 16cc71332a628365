"""The health check of a container: `python -m services.probe [PORT]` asks the operations port on loopback whether it is ready.

Without a port it is the one that the container's service, in `SERVICE`, opens unless told otherwise. Standard library only, since
it runs every few seconds beside the service.
"""

from __future__ import annotations

import http.client
import os
import sys
from typing import Final

PORTS: Final = {"edge": 9100, "router": 8001, "cache": 8002, "inference_adapter": 8010}
_ANSWER_S: Final = 5.0


def ready(port: int) -> bool:
    """True when `/readyz` on this port says so within five seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else PORTS[os.environ["SERVICE"]]
    sys.exit(0 if ready(int(given)) else 1)
