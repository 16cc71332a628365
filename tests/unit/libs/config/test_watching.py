"""Parts of the configuration that change while the process runs, whatever they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from streamway.config.watching import ConfigWatch, Reloads
from streamway.runtime.start import StartError

NAME = Reloads("limits", "streamway_limits_reloads", "limits")


class Limits:
    """A part that is one file; `named` is a second one that it must find."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "limits"
        self.named = folder / "named"
        self.loads = 0
        self.registry = CollectorRegistry()
        self.write("1")

    def write(self, text: str) -> None:
        self.path.write_text(text)

    def load(self, before: str | None) -> str:
        self.loads += 1
        text = self.path.read_text()
        if text == "bad":
            raise StartError("limits: bad")
        if text == "needs" and not self.named.exists():
            raise StartError("limits: what it names is missing")
        return text

    def watch(self) -> ConfigWatch[str]:
        return ConfigWatch(self.load, lambda _: [self.path], 0.5, NAME, self.registry)

    def counts(self) -> list[float | None]:
        return [
            self.registry.get_sample_value("streamway_limits_reloads_total", {"outcome": outcome})
            for outcome in ("applied", "refused")
        ]


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    return Limits(tmp_path)


async def test_what_has_not_changed_is_not_read(limits: Limits) -> None:
    watch = limits.watch()
    for _ in range(30):
        assert not await watch.look()
    assert limits.loads == 1


async def test_one_problem_is_told_and_counted_once_also_when_it_is_met_again(limits: Limits) -> None:
    watch = limits.watch()
    limits.write("bad")
    with capture_logs() as logs:
        for _ in range(30):
            assert not await watch.look()
    assert watch.value == "1"
    assert limits.counts() == [0, 1]
    told = [(entry["event"], entry["part"], entry["problem"]) for entry in logs]
    assert told == [("config_not_reloaded", "limits", "limits: bad")]
    # It was looked at again meanwhile.
    assert limits.loads > 3


async def test_what_was_refused_counts_as_soon_as_what_it_names_is_there(limits: Limits) -> None:
    watch = limits.watch()
    limits.write("needs")
    assert not await watch.look()
    limits.named.write_text("")
    for _ in range(15):
        await watch.look()
    assert watch.value == "needs"
    assert limits.counts() == [1, 1]


async def test_the_same_problem_after_a_good_change_is_told_again(limits: Limits) -> None:
    watch = limits.watch()
    for text in ("bad", "22", "bad"):
        limits.write(text)
        await watch.look()
    assert watch.value == "22"
    assert limits.counts() == [1, 2]


def test_what_is_bad_at_the_start_stops_it(limits: Limits) -> None:
    limits.write("bad")
    with pytest.raises(StartError, match="limits: bad"):
        limits.watch()
