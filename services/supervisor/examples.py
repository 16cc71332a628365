"""Examples that the help of each command ends with. A test runs their words through the parser."""

from __future__ import annotations

from typing import Final


def _examples(*rows: tuple[str, str]) -> str:
    width = max(len(command) for command, _ in rows)
    lines = [f"  {command:<{width}}   {what}".rstrip() for command, what in rows]
    return "\n\n".join([f"[bold]{'Examples' if len(rows) > 1 else 'Example'}[/bold]", *lines]) + "\n"


UP: Final = _examples(
    ("streamway up", "the small model of `make run`, on llama.cpp"),
    ("streamway up --model ~/models/qwen3-8b.gguf", "any GGUF file"),
    ("streamway up --engine simulated --workers 4", "no model at all, four workers"),
    ("streamway up --engine http://127.0.0.1:8000", "a vLLM that runs already"),
)
CHAT: Final = _examples(
    ("streamway chat", "a conversation; Ctrl-C stops an answer, Ctrl-D ends it"),
    ('streamway chat "Name three rivers"', "one answer, then exit"),
    ("git diff | streamway chat -", "the question from standard input"),
    ("streamway chat --resume", "where the last chat stopped, in mid-answer too"),
    ("streamway chat --generation 0197a1b2-…", "any answer, from its beginning"),
)
TOP: Final = _examples(
    ("streamway top", "until Ctrl-C"),
    ("streamway top --once", "for scripts: one table"),
    ("streamway top --valkey redis://10.0.0.5:6379/0", "another mesh than this machine's"),
)
STATUS: Final = _examples(
    ("streamway status", "the mesh of this machine"),
    ("streamway status --valkey redis://10.0.0.5:6379/0", "another one"),
)
CHAOS: Final = _examples(
    ("streamway chaos", "a mesh of its own; each kind killed, paused, cut off"),
    ("streamway chaos --full --json chaos.json", "the whole matrix"),
    ("streamway chaos --running --only adapter", "the mesh of `streamway up --engine simulated --workers 2`"),
)
TUNE: Final = _examples(
    ("streamway tune", "some minutes of computing; writes tuned.yaml"),
    ("streamway tune --live 3 --out mine.yaml", "and tries it beside the default on a mesh"),
    ("STREAMWAY_CONFIG=tuned.yaml streamway up", "uses what was found"),
)
PRUNE: Final = _examples(
    ("streamway prune --dry-run", "what it would free"),
    ("streamway prune", "frees it"),
)
RELOAD: Final = _examples(
    ("streamway reload", "all workers with a llama.cpp, one after another"),
    ("streamway reload adapter-1", "only this one"),
)
CONFIG_SHOW: Final = _examples(("streamway config show", "what a start now would use"))
CONFIG_CHECK: Final = _examples(
    ("STREAMWAY_CONFIG=new.yaml streamway config check", "before it is used"),
)
DEAD: Final = _examples(
    ("streamway tasks dead", "how many each model has"),
    ("streamway tasks dead qwen3-8b", "those of one"),
)
REDRIVE: Final = _examples(("streamway tasks redrive qwen3-8b", "all of one model"))
KEYS_NEW: Final = _examples(("streamway keys new --tenant acme", "a key, and its row for the keys file"))
KEYS_HASH: Final = _examples(("streamway keys hash < key.txt", "the hash of a key that exists"))

TRACE: Final = _examples(
    ("streamway trace 0197a5c2-77f1-7d0a-8c53-0b6f0d4b0c11", "where it was, and when"),
    ("streamway trace --json 0197a5c2-77f1-7d0a-8c53-0b6f0d4b0c11", "the same for a program"),
    ("streamway trace --ask 10.0.0.7:9100 0197a5c2-77f1-7d0a-8c53-0b6f0d4b0c11", "an edge of another machine too"),
)
