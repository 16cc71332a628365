"""`docker build` in the place of Compose where that has no buildx."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import images

CONFIG = {
    "services": {
        "cache": {
            "image": "streamway-cache",
            "build": {
                "context": "/src",
                "dockerfile": "services/Dockerfile",
                "args": {"SERVICE": "cache", "BASE": "base:1"},
                "secrets": [{"source": "ca_bundle"}],
            },
        },
        "adapter": {"image": "streamway-adapter", "build": {"context": "/src", "dockerfile": "services/Dockerfile"}},
        "another-adapter": {
            "image": "streamway-adapter",
            "build": {"context": "/src", "dockerfile": "services/Dockerfile"},
        },
        "valkey": {"image": "valkey/valkey:8.1-alpine"},
    },
    "secrets": {"ca_bundle": {"file": "/etc/ssl/certs/ca-certificates.crt"}},
}


def test_each_image_is_built_once_with_its_arguments_and_secrets() -> None:
    cache, adapter = images.commands(CONFIG)
    assert cache == [
        *("docker", "build", "--tag", "streamway-cache", "--file", "/src/services/Dockerfile"),
        *("--build-arg", "SERVICE=cache", "--build-arg", "BASE=base:1"),
        *("--secret", "id=ca_bundle,src=/etc/ssl/certs/ca-certificates.crt", "/src"),
    ]
    assert adapter[3] == "streamway-adapter"


@pytest.mark.parametrize("buildx", [True, False])
def test_compose_builds_where_it_can_and_docker_elsewhere(
    buildx: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "said"
    docker = tmp_path / "docker"
    docker.write_text(
        f"""#!/bin/sh
echo "$DOCKER_BUILDKIT $*" >> {said}
case "$*" in
  "buildx version") exit {0 if buildx else 1};;
  *config*) echo '{{"services": {{"cache": {{"image": "i", "build": {{"context": "/c", "dockerfile": "D"}}}}}}}}';;
  build*) exit 3;;
esac
""",
        encoding="utf-8",
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("DOCKER_BUILDKIT", raising=False)
    if buildx:
        images.build(["docker", "compose", "--file", "x"])
    else:
        with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
            images.build(["docker", "compose", "--file", "x"])
    last = " compose --file x build" if buildx else "1 build --tag i --file /c/D /c"
    assert said.read_text(encoding="utf-8").splitlines()[-1] == last
