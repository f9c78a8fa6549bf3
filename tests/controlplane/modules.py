"""The sources of Go modules, for what others publish in them: CRDs."""

import json
import subprocess
from pathlib import Path

from tests.controlplane import building


class ModuleMissing(Exception):  # noqa: N818 named by what happened
    """`go mod download` refused; the message has its words."""


def source(module: str, version: str) -> Path:
    """Return the folder of a module's source; go keeps it in its own cache, and checks it against a public log."""
    building.check_go(building.HERE / "helm")
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env=building.go_environment(),
    )
    if done.returncode:
        raise ModuleMissing(done.stdout + done.stderr)
    return Path(json.loads(done.stdout)["Dir"])
