"""gRPC the way every service does it: options, server, channels, authentication, errors."""

from streamway.rpc.calls import SILENT, own_call
from streamway.rpc.channel import mesh_metadata, open_channel
from streamway.rpc.interceptors import caller, standing
from streamway.rpc.server import MeshServer, MountedService

__all__ = ["SILENT", "MeshServer", "MountedService", "caller", "mesh_metadata", "open_channel", "own_call", "standing"]
