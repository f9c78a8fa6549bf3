"""Earlier Musters out of the repository's history, run with the libraries of this one."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.musters import ROOT

BEFORE = "9f9431ca31ff5b6b2a87d9daa76751c7c8321c73"
"""A commit whose ledger has the schema `SCHEMA`: before closings, shared budgets and all that came with them."""

SCHEMA = "0001"

WEBHOOKS_BEFORE = "6b87c6265a17c43ae78f09ac8e8f4ece6cbdf526"
"""A commit whose webhook reads its certificate from files, and its settings from YAML: before traces, holding
of whole workloads, aliases of queues, and all that has changed in the webhook since."""

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
"""These versions read their settings from YAML."""


def unpacked(folder: Path, commit: str) -> Path | None:
    """Write a version's package into a folder and return where; None where the history is not there."""
    tree = folder / f"{FOLDER}-{commit[:7]}"
    tree.mkdir()
    archive = tree.with_suffix(".tar")
    command = ["git", "-C", str(ROOT), "archive", "-o", str(archive), commit, "admission", "config", "migrations"]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    subprocess.run(["tar", "-x", "-f", str(archive), "-C", str(tree)], check=True)
    return tree


def words(tree: Path) -> Sequence[str]:
    """Return what starts the `muster` of that version."""
    return ("/usr/bin/env", f"PYTHONPATH={tree}", sys.executable, "-P", "-c", PROGRAM)
