"""API keys, tenants and exposure."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from streamway.auth import ANONYMOUS, ApiKeys, Identity, hash_key, is_loopback, refuse_open_exposure
from streamway.auth.keys import same_secret
from streamway.config import SharedSettings
from streamway.runtime.process import StartError


def keys_file(folder: Path, text: str) -> Path:
    path = folder / "keys.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_key_leads_to_its_tenant_and_is_nowhere_in_the_file(tmp_path: Path) -> None:
    path = keys_file(tmp_path, f"keys:\n  - {{hash: {hash_key('k-1')}, tenant: acme}}\n")
    keys = ApiKeys.read(path)
    assert keys.identify("k-1") == Identity("acme")
    assert keys.identify("k-2") is None
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "needs a list 'keys'"),
        ("keys: []", "needs a list 'keys'"),
        ("keys: [1]", "row 1"),
        ("keys: [{hash: abc, tenant: a}]", "row 1"),
        (f"keys: [{{hash: {'a' * 64}, tenant: 'has space'}}]", "row 1"),
        (f"keys: [{{hash: {'a' * 64}, tenant: a}}, {{hash: {'a' * 64}, tenant: b}}]", "row 2"),
        ("keys: [", "is not YAML"),
    ],
)
def test_a_wrong_keys_file_stops_the_start_in_one_line(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(StartError, match=part) as caught:
        ApiKeys.read(keys_file(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_missing_or_binary_keys_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot read"):
        ApiKeys.read(tmp_path / "none.yaml")
    (tmp_path / "keys.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="cannot read"):
        ApiKeys.read(tmp_path / "keys.yaml")


def test_a_claimed_tenant_is_believed_only_from_the_mesh() -> None:
    assert Identity("acme").tenant_for("other") == "acme"
    assert Identity("anonymous", mesh=True).tenant_for("other") == "other"
    assert Identity("anonymous", mesh=True).tenant_for("") == "anonymous"
    assert not ANONYMOUS.mesh


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    refuse_open_exposure(host, SharedSettings())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_beyond_loopback_needs_mesh_token_and_keys(host: str, tmp_path: Path) -> None:
    token, keys = SecretStr("t"), tmp_path / "keys.yaml"
    with pytest.raises(StartError, match="STREAMWAY_MESH_TOKEN and STREAMWAY_API_KEYS_FILE"):
        refuse_open_exposure(host, SharedSettings())
    with pytest.raises(StartError, match="set STREAMWAY_API_KEYS_FILE,"):
        refuse_open_exposure(host, SharedSettings(mesh_token=token))
    with pytest.raises(StartError, match="set STREAMWAY_MESH_TOKEN,"):
        refuse_open_exposure(host, SharedSettings(api_keys_file=keys))
    refuse_open_exposure(host, SharedSettings(mesh_token=token, api_keys_file=keys))


def test_secrets_are_compared_whole() -> None:
    assert same_secret("ä", "ä")
    assert not same_secret("a", "ab")
