"""Who a caller is by what it shows, and what may be reachable."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from streamway.auth import ANONYMOUS, Credentials, Identity, hash_key, is_loopback, refuse_open_exposure, watch_tenancy
from streamway.auth.credentials import same_secret
from streamway.config import SharedSettings
from streamway.errors import Unauthenticated
from streamway.runtime.process import StartError
from streamway.tenancy import Tenancy, read_keys
from streamway.tenancy.watching import TenancyWatch

TOKEN = SecretStr("t")


def keys_file(folder: Path, text: str) -> Path:
    path = folder / "keys.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def credentials(folder: Path, text: str) -> Credentials:
    path = folder / "tenants.yaml"
    path.write_text(text, encoding="utf-8")
    return Credentials(TenancyWatch(SharedSettings(tenants_file=path)))


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
        read_keys(keys_file(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_missing_or_binary_keys_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="cannot read"):
        read_keys(tmp_path / "none.yaml")
    (tmp_path / "keys.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(StartError, match="cannot read"):
        read_keys(tmp_path / "keys.yaml")


def test_a_key_leads_to_its_tenant_and_no_other_does(tmp_path: Path) -> None:
    known = credentials(tmp_path, f"tenants: {{acme: {{tier: gold, keys: [{hash_key('k-1')}]}}}}")
    assert known.required
    assert not known.lets_anybody_in
    assert known.identify("k-1") == Identity("acme")
    for shown, words in (("k-2", "unknown"), ("", "missing"), ("\udcff", "unknown"), (hash_key("k-1"), "unknown")):
        with pytest.raises(Unauthenticated, match=words):
            known.identify(shown)


def test_while_nobody_has_a_key_everybody_is_the_anonymous_tenant(tmp_path: Path) -> None:
    for known in (Credentials(TenancyWatch(SharedSettings())), credentials(tmp_path, "tenants: {acme: {tier: gold}}")):
        assert not known.required
        assert known.identify("") == known.identify("sk-whatever") == ANONYMOUS


def test_anonymous_callers_beside_keys_are_the_tenant_named_for_them(tmp_path: Path) -> None:
    rows = f"acme: {{tier: gold, keys: [{hash_key('k-1')}]}}, guest: {{tier: bronze}}"
    known = credentials(tmp_path, f"anonymous: guest\ntenants: {{{rows}}}")
    assert known.identify("") == Identity("guest")
    with pytest.raises(Unauthenticated):
        known.identify("k-2")


def test_a_claimed_tenant_is_believed_only_from_the_mesh() -> None:
    assert Identity("acme").tenant_for("other") == "acme"
    assert Identity("anonymous", mesh=True).tenant_for("other") == "other"
    assert Identity("anonymous", mesh=True).tenant_for("") == "anonymous"
    assert not ANONYMOUS.mesh


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1", "[::1]"])
def test_loopback_needs_nothing(host: str) -> None:
    assert is_loopback(host)
    refuse_open_exposure(host, SharedSettings(), Tenancy())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_beyond_loopback_needs_mesh_token_and_keys_and_nobody_anonymous(host: str) -> None:
    keys = Tenancy(keys={"hash": "acme"}, anonymous="")
    with pytest.raises(StartError, match="STREAMWAY_MESH_TOKEN and STREAMWAY_API_KEYS_FILE or keys of tenants"):
        refuse_open_exposure(host, SharedSettings(), Tenancy())
    with pytest.raises(StartError, match="set STREAMWAY_API_KEYS_FILE or keys of tenants,"):
        refuse_open_exposure(host, SharedSettings(mesh_token=TOKEN), Tenancy())
    with pytest.raises(StartError, match="set STREAMWAY_MESH_TOKEN,"):
        refuse_open_exposure(host, SharedSettings(), keys)
    with pytest.raises(StartError, match="remove 'anonymous'"):
        refuse_open_exposure(host, SharedSettings(mesh_token=TOKEN), Tenancy(keys={"hash": "acme"}, anonymous="guest"))
    refuse_open_exposure(host, SharedSettings(mesh_token=TOKEN), keys)


async def test_what_may_not_be_reachable_is_refused_later_too(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    rows = f"acme: {{tier: gold, keys: [{hash_key('k-1')}]}}, guest: {{tier: bronze}}"
    path.write_text(f"tenants: {{{rows}}}")
    watch = watch_tenancy("0.0.0.0", SharedSettings(tenants_file=path, mesh_token=TOKEN))
    path.write_text(f"anonymous: guest\ntenants: {{{rows}}}")
    assert not await watch.look()
    with pytest.raises(Unauthenticated):
        Credentials(watch).identify("")


def test_secrets_are_compared_whole() -> None:
    assert same_secret("ä", "ä")
    assert not same_secret("a", "ab")
