"""The `streamway` command: starts the mesh as processes, talks to it, and looks at it. Imports no service."""
