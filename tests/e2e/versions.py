"""An earlier Muster out of the repository's history, run with the libraries of this one."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.musters import ROOT

BEFORE = "9f9431ca31ff5b6b2a87d9daa76751c7c8321c73"
"""A commit whose ledger has the schema `SCHEMA`: before closings, shared budgets and all that came with them."""

SCHEMA = "0001"

FOLDER = "before"

PROGRAM = """
import sys, tomllib, yaml
from pathlib import Path
from admission import cli
at = sys.argv.index("--config") + 1
settings = Path(sys.argv[at])
sys.argv[at] = str(settings.with_suffix(".yaml"))
Path(sys.argv[at]).write_text(yaml.safe_dump(tomllib.loads(settings.read_text())))
cli.main()
"""
"""That version reads its settings from YAML."""


def unpacked(folder: Path) -> Path | None:
    """Write that version's package into a folder and return it; None where the history is not there."""
    tree = folder / FOLDER
    tree.mkdir()
    archive = folder / "before.tar"
    command = ["git", "-C", str(ROOT), "archive", "-o", str(archive), BEFORE, "admission", "config", "migrations"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    subprocess.run(["tar", "-x", "-f", str(archive), "-C", str(tree)], check=True)
    return tree


def without(logs: str) -> str:
    """Return logs in which no traceback of that version passes for one of this Muster's."""
    return logs.replace(f"/{FOLDER}/admission/", f"/{FOLDER}/")


def words(tree: Path) -> Sequence[str]:
    """Return what starts the `muster` of that version."""
    return ("/usr/bin/env", f"PYTHONPATH={tree}", sys.executable, "-P", "-c", PROGRAM)
