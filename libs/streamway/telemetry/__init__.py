"""Logs, metrics, traces, and the request context that ties them together."""
