"""A real Prometheus, with what it scrapes or with blocks of samples that were made before."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.processes import Family, FreePorts
from tests.promtool import programs

Sample = tuple[str, datetime, float]
"""A series as it is exposed, a time and a value."""


def program(name: str) -> Path:
    """Return where a program of Prometheus is; without it the test is skipped."""
    try:
        return programs.path(name)
    except programs.ProgramMissing as missing:
        pytest.skip(str(missing))


def free_port() -> int:
    with FreePorts() as ports:
        return ports.pick()


@contextmanager
def running(folder: Path, config: Mapping[str, Any], *, port: int) -> Iterator[str]:
    """Run Prometheus over the data in a folder; yield its URL, where it may not answer yet."""
    file = folder / "prometheus.yaml"
    file.write_text(yaml.safe_dump(dict(config)))
    family = Family(Path(tempfile.mkdtemp(dir=folder)))  # which ends with it
    try:
        options = {
            "config.file": file,
            "storage.tsdb.path": folder / "data",
            "storage.tsdb.retention.time": "100y",
            "web.listen-address": f"127.0.0.1:{port}",
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        started = family.start("prometheus", [str(program("prometheus")), *words])
        yield f"http://127.0.0.1:{port}"
        started.end()
    finally:
        family.end()


def write_blocks(folder: Path, samples: Sequence[Sample]) -> None:
    """Make blocks of samples, which a Prometheus over this folder has as if it had scraped them."""
    lines = dict[str, list[str]]()
    for series, at, value in samples:
        lines.setdefault(series.partition("{")[0], []).append(f"{series} {value} {at.timestamp():.3f}\n")
    text = "".join(f"# TYPE {name} gauge\n{''.join(found)}" for name, found in sorted(lines.items()))
    file = folder / "samples.txt"
    file.write_text(f"{text}# EOF\n")
    words = ("tsdb", "create-blocks-from", "openmetrics", str(file), str(folder / "data"))
    command = [str(program("promtool")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
