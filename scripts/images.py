"""Builds the images of docker-compose.yml: `make up`, `make roll`, `make compose-test`.

Compose builds them where it can. It needs the plugin buildx for that, which Debian's `docker.io` does not have; `docker build`
makes the same images of the same lines there, with the BuildKit that such a client carries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts.docker_engine import NoEngine, engine

_BUILDX: Final = ("docker", "buildx", "version")


def build(compose: Sequence[str]) -> None:
    """Every image that `compose`, a command with its files, profiles and options, has a build for.

    Raises CalledProcessError where one fails, whose output has been shown.
    """
    if subprocess.run(_BUILDX, capture_output=True, check=False).returncode == 0:
        subprocess.run([*compose, "build"], check=True)
        return
    told = subprocess.run([*compose, "config", "--format", "json"], check=True, stdout=subprocess.PIPE, text=True)
    for command in commands(json.loads(told.stdout)):
        print(f"no buildx: {' '.join(command)}", flush=True)
        subprocess.run(command, check=True, env=os.environ | {"DOCKER_BUILDKIT": "1"})


def commands(config: Mapping[str, Any]) -> list[list[str]]:
    """`docker build` for each image of what `compose config` says, in its order, each image once."""
    made: dict[str, list[str]] = {}
    for service in config["services"].values():
        image, how = service.get("image", ""), service.get("build")
        if how is None or image in made:
            continue
        command = ["docker", "build", "--tag", image, "--file", str(Path(how["context"]) / how["dockerfile"])]
        for name, value in how.get("args", {}).items():
            command += ["--build-arg", f"{name}={value}"]
        for secret in how.get("secrets", ()):
            name = secret["source"]
            command += ["--secret", f"id={secret.get('target') or name},src={config['secrets'][name]['file']}"]
        made[image] = [*command, how["context"]]
    return list(made.values())


def failed(problem: subprocess.CalledProcessError) -> str:
    """What is said of a build that failed."""
    return f"the images could not be built: {' '.join(problem.cmd)} ended with {problem.returncode}"


if __name__ == "__main__":
    try:
        engine()
        build(sys.argv[1:])
    except NoEngine as absent:
        sys.exit(f"nothing was built: {absent}")
    except subprocess.CalledProcessError as problem:
        sys.exit(failed(problem))
