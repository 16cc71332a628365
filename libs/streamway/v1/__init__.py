"""Modules generated from `protos/streamway/v1` by `make gen`."""
