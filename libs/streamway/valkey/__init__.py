"""Valkey or Redis: connections, key names, leases."""
