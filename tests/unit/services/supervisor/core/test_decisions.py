"""What the supervisor decides without touching anything: restarts, engines, the plan of a mesh."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from services.supervisor.core.backoff import Backoff
from services.supervisor.core.engine import BadEngine, choose, threads_each
from services.supervisor.core.plan import Engine, plan

SIMULATED = Engine("simulated")


def test_the_first_crash_restarts_at_once_and_later_ones_wait_longer_up_to_five_seconds() -> None:
    backoff = Backoff()
    assert [backoff.after_crash(1.0) for _ in range(8)] == [0, 0.25, 0.5, 1, 2, 4, 5, 5]
    for _ in range(2000):
        assert backoff.after_crash(1.0) == 5


def test_a_process_that_lived_for_a_while_starts_counting_anew() -> None:
    backoff = Backoff()
    backoff.after_crash(1.0)
    backoff.after_crash(1.0)
    assert backoff.after_crash(30.0) == 0
    assert backoff.after_crash(1.0) == 0.25


@pytest.mark.parametrize(
    ("engine", "model", "kind"),
    [
        ("llamacpp", None, "llamacpp"),
        ("llamacpp", Path("m.gguf"), "llamacpp"),
        ("llamacpp_inside", Path("m.gguf"), "llamacpp_inside"),
        ("simulated", None, "simulated"),
        ("http://127.0.0.1:8000", None, "openai_http"),
        ("https://vllm.example/v1", None, "openai_http"),
        ("unix:/run/engine.sock", None, "openai_http"),
    ],
)
def test_engines_that_exist(engine: str, model: Path | None, kind: str) -> None:
    assert choose(engine, model).kind == kind


@pytest.mark.parametrize(
    ("engine", "model"),
    [
        ("vllm", None),
        ("", None),
        ("ftp://x", None),
        ("http://", None),
        ("http://x:0", None),
        ("http://x:99999", None),
        ("simulated", Path("m.gguf")),
        ("http://127.0.0.1:8000", Path("m.gguf")),
    ],
)
def test_engines_that_make_no_sense(engine: str, model: Path | None) -> None:
    with pytest.raises(BadEngine):
        choose(engine, model)


def made(**changes: Any) -> dict[str, dict[str, str]]:
    counter = itertools.count(40_000)
    settings = {"engine": SIMULATED, "workers": 2, "edges": 2, "host": "127.0.0.1", "port": 8080, **changes}
    processes = plan(free_ports=lambda count: [next(counter) for _ in range(count)], **settings)
    return {p.name: dict(zip(p.arguments[::2], p.arguments[1::2], strict=True)) for p in processes}


def test_fixed_ports_are_those_of_the_documentation() -> None:
    mesh = made()
    assert list(mesh) == ["cache-0", "adapter-0", "adapter-1", "router-0", "edge-0", "edge-1"]
    assert mesh["cache-0"] == mesh["router-0"] == {}, "they keep their own settings"
    assert (mesh["adapter-1"]["--port"], mesh["adapter-1"]["--operations-port"]) == ("7011", "8011")
    assert (mesh["edge-1"]["--port"], mesh["edge-1"]["--operations-port"]) == ("8080", "9101")
    assert mesh["adapter-1"]["--worker"] == "adapter-1"


def test_with_port_zero_no_two_processes_share_one_but_the_edges() -> None:
    mesh = made(port=0, workers=3, edges=3)
    public = {options["--port"] for name, options in mesh.items() if name.startswith("edge-")}
    assert len(public) == 1
    others = [options["--operations-port"] for options in mesh.values()]
    others += [options["--port"] for name, options in mesh.items() if not name.startswith("edge-")]
    assert len({*others, *public}) == len(others) + 1


def test_adapters_are_told_their_engine() -> None:
    llama = made(engine=Engine("llamacpp", model=Path("/m.gguf")))["adapter-0"]
    assert (llama["--backend"], llama["--model-path"]) == ("llamacpp", "/m.gguf")
    served = made(engine=Engine("openai_http", url="http://e:1"))["adapter-0"]
    assert (served["--backend"], served["--engine-url"]) == ("openai_http", "http://e:1")
    assert made()["adapter-0"]["--backend"] == "simulated"


@pytest.mark.parametrize(
    ("cores", "workers", "threads"), [(2, 1, 2), (2, 2, 1), (2, 5, 1), (8, 3, 2), (1.5, 1, 1), (0.5, 2, 1)]
)
def test_engines_on_one_machine_share_its_cores(cores: float, workers: int, threads: int) -> None:
    assert threads_each(cores, workers) == threads


def test_routers_beyond_the_first_have_names_and_ports_of_their_own() -> None:
    mesh = made(routers=3)
    assert [mesh[f"router-{index}"].get("--port") for index in range(3)] == [None, "7101", "7102"]
    assert [mesh[f"router-{index}"]["--id"] for index in range(3)] == ["router-0", "router-1", "router-2"]
    anywhere = made(routers=2, port=0)
    assert len({anywhere[name]["--port"] for name in ("router-0", "router-1", "cache-0")}) == 3
