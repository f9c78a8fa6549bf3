"""What docs/install.md and the runbook tell people to type exists: files, values of the chart, commands of Muster."""

import re
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from admission import cli

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / "docs" / name).read_text() for name in ("install.md", "runbook.md")}
COMMANDS = [line for page in PAGES.values() for line in "\n".join(page.split("```")[1::2]).splitlines() if line]
VALUES = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())


def test_the_files_that_are_named_exist() -> None:
    named = {path for line in COMMANDS for path in re.findall(r"\b(?:config|deploy)/[\w./-]+", line) if "=" not in path}

    assert {"deploy/chart", "deploy/manifests", "deploy/Dockerfile"} <= named
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_values_that_are_set_are_the_charts() -> None:
    named = {name for line in COMMANDS for name in re.findall(r"--set '?([\w.]+)", line)}

    assert "image.repository" in named
    assert [name for name in named if not _has(VALUES, name.split("."))] == []


def _has(values: Any, names: list[str]) -> bool:
    """Whether there is such a value; what is below a list is the user's to name."""
    if not names or isinstance(values, list):
        return True
    return isinstance(values, dict) and names[0] in values and _has(values[names[0]], names[1:])


def test_the_commands_of_muster_exist() -> None:
    words = [line.split(" muster ", 1)[-1].removeprefix("muster ").split() for line in COMMANDS if _is_muster(line)]

    assert words
    for line in words:
        command = list(takewhile(lambda word: not word.startswith("-"), line))
        assert CliRunner().invoke(cli.app, [*command, "--help"]).exit_code == 0, command


def _is_muster(line: str) -> bool:
    return line.startswith("muster ") or "-- muster " in line
