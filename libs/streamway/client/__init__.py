"""The mesh for a Python program, over gRPC: docs/clients/python.md shows how."""

from streamway.client.asking import Message
from streamway.client.client import Client
from streamway.client.many import Many
from streamway.client.stream import Stream

__all__ = ["Client", "Many", "Message", "Stream"]
