"""Shared code of the mesh. Services import it; it imports no service."""

__version__ = "0.1.0"
