"""Makes what a mesh beyond loopback needs, once: a mesh token and one API key, in `.run/`.

`.run/compose.env` holds the token for `docker compose --env-file`, `.run/api-keys.yaml` the hash of the key. The key itself
is printed this one time and kept nowhere.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from streamway.auth import hash_key

ROOT: Final = Path(__file__).resolve().parent.parent


def main() -> None:
    folder = ROOT / ".run"
    folder.mkdir(exist_ok=True)
    token_file, keys_file = folder / "compose.env", folder / "api-keys.yaml"
    if not token_file.exists():
        token_file.touch(mode=0o600)
        token_file.write_text(f"STREAMWAY_MESH_TOKEN={secrets.token_urlsafe(32)}\n", encoding="utf-8")
    if not keys_file.exists():
        key = f"sw-{secrets.token_urlsafe(32)}"
        # Readable by the containers' user, who is nobody here; it holds hashes only.
        keys_file.write_text(f"keys:\n  - {{hash: {hash_key(key)}, tenant: default}}\n", encoding="utf-8")
        print(f"your API key, shown only now: {key}\nwritten as a hash to {keys_file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
