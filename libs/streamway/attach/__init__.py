"""Reading generations from workers: one `Attach` stream for each worker address. The API is described in `client`."""

from streamway.attach.client import AttachClient
from streamway.attach.pool import AttachPool
from streamway.attach.subscription import AttachSink

__all__ = ["AttachClient", "AttachPool", "AttachSink"]
