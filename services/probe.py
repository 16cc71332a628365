"""The health check of a container: `python -m services.probe PORT` asks the operations port on loopback whether it is ready.

Standard library only, since it runs every few seconds beside the service.
"""

from __future__ import annotations

import http.client
import sys


def ready(port: int) -> bool:
    """True when `/readyz` on this port says so within two seconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if ready(int(sys.argv[1])) else 1)
