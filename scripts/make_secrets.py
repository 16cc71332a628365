"""Makes what a mesh of containers needs, once: a mesh token, one API key, and a file for tenants and models, in `.run/`.

`.run/compose.env` holds the token for `docker compose --env-file`, and any other setting that is written into it;
`.run/api-keys.yaml` the hash of the key. The key itself is printed this one time and kept nowhere.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from streamway.auth import hash_key

ROOT: Final = Path(__file__).resolve().parent.parent
_SECTIONS: Final = (
    "# The sections `tenancy` and `models`: docs/tenants.md, docs/models.md. Read again when this file changes.\n"
)


def make(folder: Path) -> str | None:
    """Writes into `folder` what is not there. Gives the API key if it made one."""
    (folder / "etc").mkdir(parents=True, exist_ok=True)
    token_file, keys_file, sections = (
        folder / "compose.env",
        folder / "api-keys.yaml",
        folder / "etc" / "streamway.yaml",
    )
    if not token_file.exists():
        token_file.touch(mode=0o600)
        token_file.write_text(f"STREAMWAY_MESH_TOKEN={secrets.token_urlsafe(32)}\n", encoding="utf-8")
    if not sections.exists():
        sections.write_text(_SECTIONS, encoding="utf-8")
    if keys_file.exists():
        return None
    key = f"sw-{secrets.token_urlsafe(32)}"
    # Readable by the containers' user, who is nobody here; it holds hashes only.
    keys_file.write_text(f"keys:\n  - {{hash: {hash_key(key)}, tenant: default}}\n", encoding="utf-8")
    return key


def shown(key: str, folder: Path) -> str:
    """What is said of a new key."""
    return f"your API key, shown only now: {key}\nwritten as a hash to {folder.name}/api-keys.yaml"


def main() -> None:
    folder = ROOT / ".run"
    key = make(folder)
    if key is not None:
        print(shown(key, folder))


if __name__ == "__main__":
    main()
