"""The sources of Go modules, for what others publish in them: CRDs."""

import json
import subprocess
from pathlib import Path

from tests.controlplane import building


class ModuleMissing(Exception):  # noqa: N818 named by what happened
    """`go mod download` refused; the message has its words."""


def source(module: str, version: str, *, used_by: Path = building.HERE / "helm") -> Path:
    """Return the folder of a module's source; go keeps it in its own cache, and checks it against a public log.

    used_by: a module of ours with the Go that it takes.
    """
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"{module}@{version}"],
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        env=building.go_environment(used_by),
    )
    if done.returncode:
        raise ModuleMissing(done.stdout + done.stderr)
    return Path(json.loads(done.stdout)["Dir"])
