"""The mesh beside other gateways, in front of one simulated engine: `make bench`."""
