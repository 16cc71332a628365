"""Tenants from a file: what a good one gives, and that each bad one is named with its place and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamway.config import SharedSettings
from streamway.runtime.process import StartError
from streamway.tenancy import Quota, Tenancy, TierName, hash_key, load_tenancy

KEY = hash_key("k-1")
OTHER = hash_key("k-2")


def load(folder: Path, text: str, **shared: object) -> Tenancy:
    path = folder / "tenants.yaml"
    path.write_text(text, encoding="utf-8")
    return load_tenancy(SharedSettings(tenants_file=path, **shared))


def keys_file(folder: Path, *rows: tuple[str, str]) -> Path:
    path = folder / "keys.yaml"
    path.write_text("keys:\n" + "\n".join(f"  - {{hash: {key}, tenant: {tenant}}}" for key, tenant in rows))
    return path


def test_without_a_configuration_every_tenant_is_unlimited_and_nobody_needs_a_key() -> None:
    tenancy = load_tenancy(SharedSettings())
    assert not tenancy.configured
    assert not tenancy.has_credentials
    tenant = tenancy.tenant("whoever")
    assert tenant is not None
    assert (tenant.quota, tenant.buffered_bytes, tenant.highest_priority) == (Quota(), None, 127)
    assert tenant.allows("any")
    assert tenancy.anonymous == "anonymous"


def test_the_keys_file_alone_keeps_working_and_then_nobody_is_anonymous(tmp_path: Path) -> None:
    tenancy = load_tenancy(SharedSettings(api_keys_file=keys_file(tmp_path, (KEY, "acme"))))
    assert tenancy.keys == {KEY: "acme"}
    assert tenancy.anonymous == ""
    tenant = tenancy.tenant("acme")
    assert tenant is not None
    assert tenant.quota == Quota()


def test_tiers_have_the_documented_defaults(tmp_path: Path) -> None:
    tenancy = load(tmp_path, "tenants: {a: {tier: gold}, b: {tier: silver}, c: {tier: bronze}}")
    found = [tenancy.tenants[name] for name in "abc"]
    assert [(t.weight, t.highest_priority, t.buffered_bytes, t.quota.concurrency) for t in found] == [
        (4, 127, 512_000_000, 256),
        (2, 63, 256_000_000, 64),
        (1, 0, 128_000_000, 16),
    ]
    assert all(t.quota.tokens_per_minute is None and t.quota.requests_per_minute is None for t in found)


def test_a_row_wins_over_its_tier_and_the_tiers_row_over_the_default(tmp_path: Path) -> None:
    tenancy = load(
        tmp_path,
        """
tiers:
  bronze: {weight: 3, tokens_per_minute: 1000, requests_per_minute: 60}
tenants:
  acme:
    tier: bronze
    concurrency: unlimited
    tokens_per_minute: 5000
    highest_priority: 5
    allowed_models: [qwen3]
    models: {qwen3: {concurrency: 2}}
""",
    )
    acme = tenancy.tenants["acme"]
    assert acme.tier is TierName.BRONZE
    assert acme.weight == 3
    assert acme.highest_priority == 5
    assert acme.buffered_bytes == 128_000_000
    assert acme.quota == Quota(concurrency=None, requests_per_minute=60, tokens_per_minute=5000)
    assert acme.model_quota("qwen3") == Quota(concurrency=2)
    assert acme.model_quota("other") == Quota()
    assert acme.allows("qwen3")
    assert not acme.allows("other")


def test_a_tenant_without_a_row_has_the_default_tier_or_nothing(tmp_path: Path) -> None:
    none = load(tmp_path, "tenants: {acme: {tier: gold}}")
    assert none.tenant("stranger") is None
    assert none.tenant("anonymous") is not None, "who runs the mesh on a laptop is not locked out by a tenant's row"
    some = load(tmp_path, "default_tier: silver\ntiers: {silver: {concurrency: 3}}")
    stranger = some.tenant("stranger")
    assert stranger is not None
    assert (stranger.tier, stranger.quota.concurrency) == (TierName.SILVER, 3)


def test_keys_of_the_rows_and_of_the_keys_file_count_together(tmp_path: Path) -> None:
    file = keys_file(tmp_path, (OTHER, "acme"))
    tenancy = load(tmp_path, f"tenants: {{acme: {{tier: gold, keys: [{KEY}]}}}}", api_keys_file=file)
    assert tenancy.keys == {KEY: "acme", OTHER: "acme"}
    assert set(tenancy.files) == {tmp_path / "tenants.yaml", file}
    assert KEY not in repr(tenancy)


def test_the_section_of_streamway_yaml_says_the_same_as_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "streamway.yaml"
    path.write_text("edge: {port: 1}\ntenancy: {tenants: {acme: {tier: gold}}}")
    monkeypatch.setenv("STREAMWAY_CONFIG", str(path))
    tenancy = load_tenancy(SharedSettings())
    assert list(tenancy.tenants) == ["acme"]
    assert tenancy.files == (path,)
    path.write_text("tenancy: {tenants: {acme: {tier: gold, wieght: 2}}}")
    with pytest.raises(StartError, match=r"streamway\.yaml: tenancy\.tenants\.acme\.wieght: .*did you mean 'weight'"):
        load_tenancy(SharedSettings())


def test_tenants_in_both_places_stop_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "streamway.yaml"
    path.write_text("tenancy: {}")
    monkeypatch.setenv("STREAMWAY_CONFIG", str(path))
    with pytest.raises(StartError, match="keep one of them"):
        load(tmp_path, "tenants: {}")


def test_anonymous_callers_beside_keys_need_a_row_of_their_own(tmp_path: Path) -> None:
    text = f"tenants: {{acme: {{tier: gold, keys: [{KEY}]}}, guest: {{tier: bronze}}}}"
    assert load(tmp_path, text).anonymous == ""
    assert load(tmp_path, text + "\nanonymous: guest").anonymous == "guest"


BAD = [
    ("tenants: {acme: {tier: gold, wieght: 2}}", r"tenants\.acme\.wieght: unknown key; did you mean 'weight'"),
    ("tenents: {}", "tenents: unknown key; did you mean 'tenants'"),
    ("'[key]': {}", r"\[key\]: unknown key; known are default_tier"),
    (
        "tenants: {a: {tier: gold, models: {m: {weight: 1}}}}",
        r"a\.models\.m\.weight: unknown key; known are concurrency",
    ),
    (
        "tenants: {acme: {tier: gold, weight: 0}}",
        r"tenants\.acme\.weight: must be a whole number from 1 to 1000; with 0",
    ),
    ("tiers: {gold: {weight: 0}}", r"tiers\.gold\.weight: must be"),
    ("tiers: {gold: {weight: true}}", r"tiers\.gold\.weight: must be"),
    (
        "tenants: {acme: {tier: platinum}}",
        r"tenants\.acme\.tier: there is no such tier; there are gold, silver, bronze",
    ),
    ("tiers: {platinum: {weight: 1}}", r"tiers\.platinum: there is no such tier"),
    ("tenants: {acme: {tier: []}}", r"tenants\.acme\.tier: there is no such tier"),
    ("tenants: {acme: {}}", r"tenants\.acme\.tier: is missing"),
    ("tenants: {acme: }", r"tenants\.acme: must be a mapping"),
    ("tenants: [acme]", "tenants: must be a mapping"),
    (
        "tenants: {acme: {tier: gold, concurrency: -1}}",
        r"acme\.concurrency: must be a whole number from 1, or 'unlimited'",
    ),
    ("tenants: {acme: {tier: gold, concurrency: 0}}", r"acme\.concurrency: must be"),
    ("tenants: {acme: {tier: gold, tokens_per_minute: }}", r"acme\.tokens_per_minute: must be"),
    ("tenants: {acme: {tier: gold, tokens_per_minute: 1.5}}", r"acme\.tokens_per_minute: must be"),
    (
        "tenants: {a: {tier: gold, models: {m: {requests_per_minute: -3}}}}",
        r"a\.models\.m\.requests_per_minute: must be",
    ),
    ("tenants: {acme: {tier: gold, highest_priority: 128}}", r"acme\.highest_priority: must be .* from -128 to 127"),
    ("tenants: {no: {tier: gold}}", "tenants.*: YAML reads a name here as False, .* quotes"),
    ("tenants: {'a b': {tier: gold}}", "a tenant's name has 1 to 64 letters"),
    ("tenants: {a: {tier: gold, keys: [sw-secret-key]}}", r"tenants\.a\.keys\.0: must be the SHA-256 of a key"),
    ("tenants: {a: {tier: gold, keys: sw-secret-key}}", r"tenants\.a\.keys: must be a list"),
    ("tenants: {a: {tier: gold, allowed_models: ['']}}", r"a\.allowed_models\.0: must be the name of a model"),
    (
        f"tenants: {{a: {{tier: gold, keys: [{KEY}]}}, b: {{tier: gold, keys: [{OTHER}, {KEY}]}}}}",
        r"tenants\.b\.keys\.1: the tenant 'a' has this key already",
    ),
    ("anonymous: guest", "anonymous: there is no tenant 'guest'; add it under tenants"),
    ("default_tier: best", "default_tier: there is no such tier"),
    ("tenants: {acme: {tier: gold}, acme: {tier: bronze}}", "'acme' stands there twice"),
    ("tenants: [", "is not YAML"),
    ("[" * 5000, "is not YAML"),
    ("- 1", "must be a mapping"),
    ("when: 2020-13-45", "is not YAML"),
]


@pytest.mark.parametrize(("text", "part"), BAD)
def test_a_bad_file_is_refused_whole_with_its_place_and_what_to_do(tmp_path: Path, text: str, part: str) -> None:
    with pytest.raises(StartError, match=part) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "tenants.yaml" in message
    assert "\n" not in message
    assert "sw-secret-key" not in message
    assert KEY not in message


def test_one_key_in_both_files_for_two_tenants_is_refused(tmp_path: Path) -> None:
    file = keys_file(tmp_path, (KEY, "bolt"))
    text = f"default_tier: gold\ntenants: {{acme: {{tier: gold, keys: [{KEY}]}}}}"
    with pytest.raises(StartError, match="the tenant 'bolt' has this key already"):
        load(tmp_path, text, api_keys_file=file)


def test_a_key_of_the_keys_file_needs_a_tenant_that_may_do_something(tmp_path: Path) -> None:
    file = keys_file(tmp_path, (KEY, "bolt"))
    with pytest.raises(StartError, match="'bolt' of the API keys file has no row here"):
        load(tmp_path, "tenants: {acme: {tier: gold}}", api_keys_file=file)


def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="check STREAMWAY_TENANTS_FILE"):
        load_tenancy(SharedSettings(tenants_file=tmp_path / "none.yaml"))
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StartError, match="not UTF-8"):
        load_tenancy(SharedSettings(tenants_file=path))


def test_when_the_semantic_level_is_asked_is_the_tenant_s_or_its_tier_s(tmp_path: Path) -> None:
    rows = "{a: {tier: gold}, b: {tier: gold, semantic_lookup: off}, c: {tier: silver}}"
    tenancy = load(tmp_path, f"default_tier: gold\ntiers: {{gold: {{semantic_lookup: before}}}}\ntenants: {rows}")
    found = {name: tenancy.tenant(name) for name in ("a", "b", "c", "whoever")}
    assert {name: str(tenant.semantic_lookup) for name, tenant in found.items() if tenant is not None} == {
        "a": "before",
        "b": "off",
        "c": "beside",
        "whoever": "before",
    }
    with pytest.raises(StartError, match="must be one of beside, before, off"):
        load(tmp_path, "tenants: {a: {tier: gold, semantic_lookup: later}}")


def test_a_tenant_may_have_its_own_threshold_and_rules(tmp_path):
    rows = "{a: {tier: gold}, b: {tier: gold, semantic_threshold: 0.9, semantic_rules_off: []}, c: {tier: silver}}"
    tiers = "{gold: {semantic_threshold: static, semantic_rules_off: [swap, order]}}"
    found = load(tmp_path, f"tiers: {tiers}\ntenants: {rows}").tenants
    assert (found["a"].semantic_threshold, found["a"].semantic_rules_off) == ("static", {"swap", "order"})
    assert (found["b"].semantic_threshold, found["b"].semantic_rules_off) == (0.9, frozenset())
    assert (found["c"].semantic_threshold, found["c"].semantic_rules_off) == (None, None)
    for wrong in ("2", "yes", "strict", ".nan"):
        with pytest.raises(StartError, match="must be 'budget', 'static', or a similarity"):
            load(tmp_path, f"tenants: {{a: {{tier: gold, semantic_threshold: {wrong}}}}}")
    with pytest.raises(StartError, match="no rule of the cache is called 'swpa'; there are script, numbers"):
        load(tmp_path, "tenants: {a: {tier: gold, semantic_rules_off: [swpa]}}")
