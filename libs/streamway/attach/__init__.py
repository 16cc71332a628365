"""Reading generations from workers: one `Attach` stream for each worker address. The API is described in `client`."""

from streamway.attach.client import AttachClient, AttachSink
from streamway.attach.pool import AttachPool

__all__ = ["AttachClient", "AttachPool", "AttachSink"]
