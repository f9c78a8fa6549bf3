"""What the README tells a reader to type does what it says."""

import subprocess
import sys
from pathlib import Path

from tests.docs import pages

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_it_opens_with_the_two_commands() -> None:
    lines = pages.blocks("README.md")[0].text.splitlines()

    assert [line.split("#")[0].strip() for line in lines] == ["make demo", "make test"]


def test_the_examples_are_admitted_offline() -> None:
    assert "muster simulate config/examples" in README
    muster = Path(sys.executable).with_name("muster")

    result = subprocess.run(
        [muster, "simulate", "config/examples"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr
    assert "vision/train  research-vision  Admitted" in result.stdout
