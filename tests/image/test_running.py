"""The image's commands, under all that the chart forbids to a container, and without a network."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from admission import __version__
from tests.image import pods
from tests.image.engines import Engine, run

MUSTER = str(Path(sys.executable).with_name("muster"))
LEDGER = "sqlite:////tmp/ledger.sqlite3"

Muster = Callable[..., str]


@pytest.fixture
def confined(engine: Engine, image: str) -> list[str]:
    """`podman run` with the security context of the chart's controller, and its /tmp."""
    pod = pods.deployment("muster-controller")["spec"]["template"]["spec"]
    return [*engine.running, "--network=none", *pods.confined(pod)]


@pytest.fixture
def muster(engine: Engine, image: str, confined: list[str]) -> Muster:
    """A `muster` command, in a container of its own."""
    return lambda *words: engine.podman(*confined, image, *words)


@pytest.fixture
def python(engine: Engine, image: str, confined: list[str]) -> Muster:
    """A script for the image's Python."""
    return lambda script: engine.podman(*confined, "--entrypoint=/opt/muster/bin/python", image, "-c", script)


def test_the_image_prints_its_version_and_its_commands(muster: Muster) -> None:
    assert __version__ in muster("--version")
    for command in ("serve", "ledger", "doctor"):
        assert command in muster("--help")


def test_the_image_prints_the_default_settings(muster: Muster) -> None:
    shown = json.loads(muster("config", "show", "--format", "json"))

    assert shown == json.loads(run(MUSTER, "config", "show", "--format", "json").stdout)


def test_the_image_prints_the_manifests_of_its_checkout(muster: Muster) -> None:
    words = ("install", "--print", "--image", "registry.example.com/muster:1", "--dashboard", "--monitoring")

    assert muster(*words) == run(MUSTER, *words).stdout


def test_the_image_has_the_ledgers_migrations_and_a_writable_tmp(
    engine: Engine, image: str, confined: list[str]
) -> None:
    commands = ("migrate", "migrate", "verify", "statement")
    script = " && ".join(f"muster ledger {command} --database {LEDGER}" for command in commands)

    said = engine.podman(*confined, "--entrypoint=/bin/sh", image, "-c", script)

    assert "are right" in said


def test_the_image_simulates_its_own_examples(python: Muster, muster: Muster) -> None:
    place = python("from admission import resources; print(resources.config())").strip()

    assert "vision/train  research-vision  Admitted" in muster("simulate", f"{place}/examples")


def test_the_image_runs_as_any_user_as_openshift_chooses_one(engine: Engine, image: str, confined: list[str]) -> None:
    words = (*confined, "--user=1000660000:0", image, "ledger", "migrate", "--database", LEDGER)

    assert "the ledger is at revision" in engine.podman(*words)


FORBIDDEN = {
    "a file of its own": "open('/opt/muster/pyvenv.cfg', 'a')",
    "the root": "open('/anything', 'w')",
    "what other images let everybody write": "open('/var/tmp/anything', 'w')",
    "another user": "import os; os.setuid(0)",
    "a mount": "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0",
    "more than its /tmp holds": "open('/tmp/large', 'wb').write(bytes(17 << 20))",
}


@pytest.mark.parametrize("script", FORBIDDEN.values(), ids=FORBIDDEN)
def test_the_confinement_of_the_image_is_in_effect(
    engine: Engine, image: str, confined: list[str], script: str
) -> None:
    done = engine.asked(*confined, "--entrypoint=/opt/muster/bin/python", image, "-c", script, ends=(1,))

    assert done.stderr.splitlines()[-1].split(":")[0] in {"OSError", "PermissionError", "AssertionError"}


def test_no_process_of_it_has_a_capability_or_can_get_one(python: Muster) -> None:
    status = dict(line.split(":\t") for line in python("print(open('/proc/self/status').read())").split("\n") if line)

    assert {int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2", "a filter of system calls"
    assert status["Uid"].split() == ["65532"] * 4
    assert status["Gid"].split() == ["65532"] * 4
