"""`make compose-test`: docker-compose.yml on a Docker engine, from `up` to `down`. A program of its own, not a part of pytest."""
