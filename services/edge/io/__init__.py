"""The edge's connections: to clients, to routers, to workers."""
