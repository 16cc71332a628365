"""Whether whoever was let in would still be let in: keys that go, tokens that expire, tenants that change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jwt
import pytest

from streamway.auth import ANONYMOUS, Credentials, Identity, ShownStanding, Standing, hash_key
from streamway.config import SharedSettings
from streamway.errors import PermissionDenied, Unauthenticated
from streamway.tenancy.watching import TenancyWatch

SECRET = "0123456789abcdef0123456789abcdef"
JWT = "\njwt: {issuer: me, audience: mesh, secret_file: secret, leeway_s: 30}"


class At:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def unix(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class House:
    """A tenants file that is changed while somebody is inside."""

    def __init__(self, folder: Path, rows: str) -> None:
        (folder / "secret").write_text(SECRET + "\n", encoding="utf-8")
        self._path = folder / "tenants.yaml"
        self._path.write_text(rows, encoding="utf-8")
        self.clock = At()
        self._watch = TenancyWatch(SharedSettings(tenants_file=self._path, mesh_token="t"))
        self.credentials = Credentials(self._watch, self.clock)

    async def change(self, rows: str) -> None:
        self._path.write_text(rows, encoding="utf-8")
        assert await self._watch.look()


def row(name: str, *keys: str) -> str:
    return f"{{{name}: {{tier: gold, keys: [{', '.join(map(hash_key, keys))}]}}}}"


def token(clock: At, **more: Any) -> str:
    made = {"iss": "me", "aud": "mesh", "exp": clock.now + 600, "tenant": "acme"} | more
    return jwt.encode(made, SECRET, "HS256")


async def test_a_key_counts_until_it_is_removed(tmp_path: Path) -> None:
    house = House(tmp_path, f"tenants: {row('acme', 'k-1', 'k-2')}")
    first, second = ShownStanding(house.credentials, "k-1"), ShownStanding(house.credentials, "k-2")
    assert first.identity == Identity("acme")
    first.check()
    await house.change(f"tenants: {row('acme', 'k-2')}")
    second.check()
    for _ in range(2):
        with pytest.raises(Unauthenticated, match="unknown"):
            first.check()
    await house.change(f"tenants: {row('acme', 'k-1', 'k-2')}")
    first.check()


async def test_a_key_that_is_another_tenants_now_counts_no_more(tmp_path: Path) -> None:
    house = House(tmp_path, f"tenants: {row('acme', 'k-1')}")
    standing = ShownStanding(house.credentials, "k-1")
    await house.change(f"tenants: {row('bolt', 'k-1')}")
    with pytest.raises(Unauthenticated, match="somebody else"):
        standing.check()


async def test_a_token_counts_until_it_expires(tmp_path: Path) -> None:
    house = House(tmp_path, f"tenants: {row('acme', 'k-1')}{JWT}")
    standing = ShownStanding(house.credentials, token(house.clock))
    house.clock.now += 629
    standing.check()
    house.clock.now += 1
    with pytest.raises(Unauthenticated, match="expired"):
        standing.check()


async def test_a_token_of_a_tenant_without_a_row_counts_no_more(tmp_path: Path) -> None:
    house = House(tmp_path, f"tenants: {row('acme', 'k-1')}{JWT}")
    standing = ShownStanding(house.credentials, token(house.clock))
    await house.change(f"tenants: {row('bolt', 'k-1')}{JWT}")
    with pytest.raises(PermissionDenied, match="acme"):
        standing.check()


async def test_while_nothing_changes_no_signature_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path, f"tenants: {row('acme', 'k-1')}{JWT}")
    standing = ShownStanding(house.credentials, token(house.clock))
    asked: list[str] = []
    monkeypatch.setattr(house.credentials, "checked", asked.append)
    standing.check()
    assert asked == []


async def test_callers_without_credentials_are_out_when_the_first_key_comes(tmp_path: Path) -> None:
    house = House(tmp_path, "tenants: {acme: {tier: gold}}")
    standing = ShownStanding(house.credentials, "")
    assert standing.identity == ANONYMOUS
    standing.check()
    await house.change(f"tenants: {row('acme', 'k-1')}")
    with pytest.raises(Unauthenticated, match="missing"):
        standing.check()


def test_a_service_of_ours_always_counts() -> None:
    Standing(Identity("anonymous", mesh=True)).check()
