"""`muster config show`, and settings that change while Muster runs."""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from admission.cli import config_command
from admission.cli.serve import reload
from admission.errors import FixError
from admission.settings import Settings
from admission.settings.live import LiveSettings
from tests.unit.cli.conftest import Muster

PASSWORD = "hush"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "muster.toml"
    path.write_text('[controller]\nsteps = 7\n\n[webhook]\nnames = ["a.example", "b.example"]\n')
    return path


def test_every_setting_is_shown_with_its_origin(muster: Muster, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_LEDGER_URL", f"postgresql://muster:{PASSWORD}@db/muster")
    monkeypatch.setenv("MUSTER_CONFIG", str(config))

    done = muster("config", "show", "--set", "lease.retry=1")

    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert lines["controller.steps"] == ["7", f"{config}:2", "live"]
    assert lines["ledger.url"] == ["postgresql://muster:***@db/muster", "MUSTER_LEDGER_URL", "restart"]
    assert lines["lease.retry"] == ["1.0", "--set", "restart"]
    assert lines["webhook.names"] == ["a.example,b.example", f"{config}:5", "restart"]
    assert lines["webhook.url"] == ["-", "default", "restart"]
    assert PASSWORD not in done.stdout


def test_config_show_prints_the_changed_settings_as_json(
    muster: Muster, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_LEDGER_URL", f"postgresql://muster:{PASSWORD}@db/muster")

    done = muster("config", "show", "--config", str(config), "--changed", "--format", "json")

    assert json.loads(done.stdout)["settings"] == {
        "controller.steps": {
            "value": 7,
            "default": 50000,
            "origin": {"source": "file", "where": f"{config}:2"},
            "live": True,
        },
        "webhook.names": {
            "value": ["a.example", "b.example"],
            "default": [],
            "origin": {"source": "file", "where": f"{config}:5"},
            "live": False,
        },
        "ledger.url": {
            "value": "postgresql://muster:***@db/muster",
            "default": "sqlite+aiosqlite:///muster.sqlite3",
            "origin": {"source": "environment", "where": "MUSTER_LEDGER_URL"},
            "live": False,
        },
    }


def test_wrong_settings_end_with_2(muster: Muster) -> None:
    done = muster("config", "show", "--set", "controler.steps=1")

    assert done.returncode == 2
    assert "--set: controler.steps: there is no such setting; did you mean controller.steps?" in done.stderr


def test_a_set_option_without_a_value_is_refused_with_its_syntax(muster: Muster) -> None:
    done = muster("config", "show", "--set", "controller.steps")

    assert done.returncode == 2
    assert "write SETTING=VALUE" in done.stderr


def read(config: Path) -> Callable[[], Settings]:
    return lambda: config_command.chosen(config, {}).settings


async def followed(
    config: Path, *happenings: Callable[[], None], poll_seconds: float = 0.001
) -> tuple[LiveSettings, list[str]]:
    """Let things happen to a file, one after the other, each once the log tells of the one before."""
    live = LiveSettings(read(config)())
    reloader = reload.Reloader(config, read(config), poll_seconds=poll_seconds)
    with capture_logs() as logs:
        reloader.listen()
        following = asyncio.create_task(reloader.follow(live))
        for happens in happenings:
            told = len(logs)
            happens()
            while len(logs) == told:  # noqa: ASYNC110 - the log has no event to wait for
                await asyncio.sleep(0.001)
        following.cancel()
    return live, [" ".join(str(value) for value in log.values()) for log in logs]


async def test_a_file_that_changes_is_read_again(config: Path) -> None:
    live, told = await followed(config, lambda: replace(config, "[controller]\nsteps = 9\n\n[webhook]\nport = 1\n"))

    assert live.now.controller.steps == 9
    assert live.now.webhook.port == 0
    assert any("settings have changed 9" in line or "9 settings have changed" in line for line in told), told


async def test_a_setting_that_needs_a_restart_is_logged_once(config: Path) -> None:
    def change(text: str) -> Callable[[], None]:
        return lambda: replace(config, text)

    port = "[webhook]\nport = 1\n"
    _, told = await followed(config, change(port), change(port + "[controller]\nsteps = 8\n"))

    waiting = [line for line in told if "need a restart" in line]
    assert len(waiting) == 1
    assert "webhook.port" in waiting[0]


async def test_a_mistake_in_a_reloaded_file_changes_no_setting_and_is_logged(config: Path) -> None:
    live, [told] = await followed(config, lambda: replace(config, "[controller]\nstepps = 9\n"))

    assert live.now.controller.steps == 7
    assert "did you mean controller.steps?" in told


async def test_sighup_has_the_file_read_at_once(config: Path) -> None:
    def hang_up() -> None:
        replace(config, "[controller]\nsteps = 9\n")
        os.kill(os.getpid(), signal.SIGHUP)

    live, _ = await followed(config, hang_up, poll_seconds=3600)

    assert live.now.controller.steps == 9


def replace(config: Path, text: str) -> None:
    """Put another file in its place, as kubelet does."""
    other = config.with_suffix(".new")
    other.write_text(text)
    other.rename(config)


def test_an_environment_that_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_WEBHOOK_PROT", "1")

    with pytest.raises(FixError, match=r"did you mean webhook\.port"):
        config_command.chosen(None, {})
