"""Records what a running engine sends, for the tests that replay it: `tests/golden/ENGINE/NAME.json`, one exchange a file.

    python scripts/record_streams.py vllm http://127.0.0.1:8000

Asked with the tiny model of scripts/build_tiny_model.py, whose words mean nothing.
"""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

ROOT: Final = Path(__file__).resolve().parent.parent
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Bern", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"fruit": {"enum": ["fig", "plum"]}},
    "required": ["fruit"],
    "additionalProperties": False,
}
_LONG: Final = "The river carries light over the stones. " * 6
# Hot enough for halves of characters.
_SEEDED: Final = {"temperature": 2, "seed": 11, "ignore_eos": True}
# By name of the file: fields over a plain streamed chat.
CHATS: Final[dict[str, dict[str, Any]]] = {
    "chat": {"max_tokens": 24, "temperature": 0, "ignore_eos": True},
    "chat_half_characters": {"max_tokens": 40, **_SEEDED, "return_token_ids": True},
    "chat_cached": {"max_tokens": 3, "messages": [{"role": "user", "content": _LONG}]},
    "chat_running_usage": {
        "max_tokens": 6,
        **_SEEDED,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    "choices": {"max_tokens": 8, "n": 3, **_SEEDED},
    "logprobs": {"max_tokens": 6, "logprobs": True, "top_logprobs": 2, **_SEEDED},
    "schema": {
        "max_tokens": 60,
        "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "one", "schema": _SCHEMA}},
    },
    "tool": {
        "max_tokens": 60,
        "temperature": 0,
        "tools": [_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    },
    "stop": {"max_tokens": 60, **_SEEDED, "stop": ["e", "a"]},
    "continued": {
        "max_tokens": 8,
        "temperature": 0,
        "ignore_eos": True,
        "messages": [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "One, two"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
    "error_context": {"messages": [{"role": "user", "content": "word " * 4000}]},
    "error_field": {"messages": "no list"},
    "error_model": {"model": "nobody"},
    "error_schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "one", "schema": {"type": "none"}}}
    },
    "error_tool": {"tools": [{"type": "function"}], "tool_choice": "required"},
    "error_temperature": {"temperature": -1},
}
PAGES: Final = {"models": "/v1/models", "version": "/version", "metrics": "/metrics"}
# Of a page of metrics: what counts requests and KV. The rest is hundreds of lines of times.
_METRICS: Final = ("vllm:num_requests_", "vllm:kv_cache_usage", "vllm:cache_config", "vllm:num_preemptions")


def exchange(host: str, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
    """One request and what came back."""
    connection = http.client.HTTPConnection(host, timeout=120)
    connection.request(
        method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    said = response.read().decode("utf-8")
    connection.close()
    kind = response.getheader("Content-Type", "")
    return {"request": body, "status": response.status, "content_type": kind, "body": said}


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit("usage: record_streams.py ENGINE http://host:port")
    engine, host = sys.argv[1], urlsplit(sys.argv[2]).netloc
    folder = ROOT / "tests" / "golden" / engine
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: exchange(host, "GET", path, None) for name, path in PAGES.items()}
    lines = made["metrics"]["body"].splitlines(keepends=True)
    made["metrics"]["body"] = "".join(line for line in lines if line.startswith(_METRICS))
    model = json.loads(made["models"]["body"])["data"][0]["id"]
    plain = {
        "model": model,
        "messages": [{"role": "user", "content": "Name three fruits."}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    exchange(host, "POST", "/v1/chat/completions", {**plain, **CHATS["chat_cached"]})
    for name, fields in CHATS.items():
        made[name] = exchange(host, "POST", "/v1/chat/completions", {**plain, **fields})
    for name, said in made.items():
        (folder / f"{name}.json").write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"recorded {len(made)} exchanges in {folder}")


if __name__ == "__main__":
    main()
