"""What the pages tell somebody to type exists, and each block of theirs is run by a test or known to be only shown."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from typing import Final

import pytest
import typer.main
import yaml
from cryptography.hazmat.primitives.asymmetric import rsa
from google.protobuf import json_format
from jwt.algorithms import RSAAlgorithm

from services.supervisor.cli import app
from streamway.config import SharedSettings
from streamway.models.rows import routing_of
from streamway.tenancy import load_tenancy
from streamway.v1 import router_pb2

ROOT: Final = Path(__file__).resolve().parents[2]
# Decisions and what was measured once say what was typed then.
PAGES: Final = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES_OF_CLIENTS: Final = sorted((ROOT / "docs" / "clients").glob("*.md"))
# A page's blocks by their first line: the test that runs it, or what it is. Frames of protocol.md are replayed by
# test_an_example_of_the_page_is_what_happens, pages of clients by test_an_example_runs_as_it_is_shown.
BLOCKS: Final[dict[str, dict[str, str]]] = {
    "README.md": {
        "browser ──── WebSocket": "a picture",
        "make run": "test_every_make_target_that_a_page_names_exists; by users and by CI itself",
        "from openai import OpenAI": "test_the_openai_example_prints_an_answer",
        '→ {"type":"open"': "shortened from protocol.md, which is replayed",
        "grpcurl -plaintext": "test_what_grpcurl_is_given_is_a_request",
        ".venv/bin/streamway keys new": "test_a_new_key_is_let_in_by_its_row_and_its_hash_is_the_same",
    },
    "cache-eval.md": {"make cache-eval": "test_every_make_target_that_a_page_names_exists"},
    "cache-speed.md": {"python -m benchmarks.cache_speed": "test_every_module_that_a_page_runs_exists"},
    "cache.md": {
        "curl -X POST $EDGE/v1/cache/entries": "test_a_wrong_answer_of_the_same_question_is_not_given_again_"
        "and_only_its_tenant_can_say_so"
    },
    "contexts.md": {
        "# The first turn brings all there is": "test_the_commands_of_the_page_keep_a_conversation_and_delete_it"
    },
    "design.md": {"browser ──── WebSocket": "a picture"},
    "engines.md": {"vllm serve MODEL": "shown: an engine of 3 GB; make test-vllm starts one so"},
    "index.md": {"make run": "test_every_make_target_that_a_page_names_exists"},
    "models.md": {"models:": "test_the_sections_that_are_shown_are_taken"},
    "operations.md": {
        "make up": "make compose-test",
        "STREAMWAY_LOG_LEVEL=debug": "test_every_setting_that_a_page_names_exists",
        "docker compose --env-file .run/compose.env up": "make compose-test",
        "git pull && make roll": "make compose-test",
        "mv new.gguf": "test_all_workers_exchange_their_weights_and_no_answer_is_lost",
        "docker compose --env-file .run/compose.env --profile tools": "make compose-test",
    },
    "protocol-journal.md": {"sw:resp:": "a picture", "confirmed": "a picture"},
    "protocol.md": {"import { StreamwayClient }": "the longer one of clients/javascript.md is run in a browser"},
    "tenants.md": {"tenancy:": "test_the_sections_that_are_shown_are_taken"},
    "tracing.md": {
        "chat qwen3-8b": "test_k3_a_websocket_generation_is_one_tree_from_the_edge_to_the_engine_with_the_cache_lookup",
        "$ streamway trace": "test_trace_shows_the_hops_of_a_generation_from_the_running_mesh",
    },
}
# What begins with STREAMWAY_ and is no setting of a service.
OTHER_VARIABLES: Final = {"STREAMWAY_CONFIG", "STREAMWAY_CLIENT_API_KEY"}


def _blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of each."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def _text(*pages: Path) -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in pages or (*PAGES, *PAGES_OF_CLIENTS))


def _tests() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found


def test_every_block_of_a_page_is_run_by_a_test_or_known_to_be_shown() -> None:
    tests = _tests()
    for page in PAGES:
        known = BLOCKS.get(page.name, {})
        found = [text.strip() for language, text in _blocks(page) if language != "frames"]
        unknown = [text[:60] for text in found if not any(text.startswith(first) for first in known)]
        assert not unknown, f"{page.name}: say in this file what runs it"
        for first, what in known.items():
            assert any(text.startswith(first) for text in found), f"{page.name} has no block {first!r} any more"
            assert set(re.findall(r"\btest_\w+", what)) <= tests, what


def test_the_sections_that_are_shown_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, models),) = [block for block in _blocks(ROOT / "docs" / "models.md") if block[0] == "yaml"]
    routing = routing_of(yaml.safe_load(models)["models"])
    assert routing.prices
    assert routing.choices
    ((_, tenancy),) = [block for block in _blocks(ROOT / "docs" / "tenants.md") if block[0] == "yaml"]
    path = tmp_path / "streamway.yaml"
    path.write_text(tenancy, encoding="utf-8")
    public = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    keys = {"keys": [json.loads(RSAAlgorithm.to_jwk(public)) | {"kid": "1"}]}
    (tmp_path / "jwks.json").write_text(json.dumps(keys), encoding="utf-8")
    monkeypatch.setenv("STREAMWAY_CONFIG", str(path))
    acme = load_tenancy(SharedSettings()).tenants["acme"]
    assert (acme.quota.concurrency, acme.model_quota("qwen3").concurrency) == (300, 8)


def test_what_grpcurl_is_given_is_a_request() -> None:
    given = re.findall(r"grpcurl -plaintext -d '([^']+)'", _text())
    assert len(given) == 2
    for text in given:
        assert json_format.Parse(text, router_pb2.GenerateRequest()).request.messages


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^|&& )(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]+)", _text(), re.MULTILINE))
    assert len(named) > 15
    assert named <= targets


def test_every_module_that_a_page_runs_exists() -> None:
    named = set(re.findall(r"python3? -m ((?:benchmarks|services|scripts|tests)[\w.]*)", _text()))
    assert len(named) > 15
    assert [name for name in sorted(named) if importlib.util.find_spec(name.rstrip(".")) is None] == []


def test_every_command_and_option_that_a_page_names_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    typed = re.findall(r"(?:`|^|\$ |bin/)streamway ([a-z]+)((?: [^`\n#]+)?)", _text(), re.MULTILINE)
    assert len(typed) > 20
    for name, rest in typed:
        assert name in commands, name
        here = commands[name]
        words = rest.split()
        while words and words[0] in getattr(here, "commands", {}):
            here = here.commands[words.pop(0)]
        known = {option for parameter in here.params for option in parameter.opts} | {"--help"}
        given = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest))
        assert given <= known, f"streamway {name}{rest}"


def test_every_setting_that_a_page_names_exists() -> None:
    settings = set(re.findall(r"STREAMWAY_[A-Z0-9_]+", (ROOT / "docs" / "configuration.md").read_text("utf-8")))
    named = {name for name in re.findall(r"STREAMWAY_[A-Z0-9_]+", _text()) if not name.endswith("_")}
    assert len(named) > 60
    missing = {name for name in named - settings - OTHER_VARIABLES if name.partition("__")[0] not in settings}
    assert missing == set()
