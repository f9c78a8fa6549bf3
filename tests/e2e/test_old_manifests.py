"""Manifests of old walkthroughs, once converted, are taken by a real API server in a dry run, and not before."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.running import CommandFailed
from tests.e2e.musters import COMMAND
from tests.unit.cli.test_convert import OLD

NAMESPACES = ("research", "dl", "ml")
"""Those of the manifests."""

FORMS = {
    "v1-in-the-old-form": {},
    "v1alpha2": {"    parametersRef: {kind: GpuConfig, name: large, apiGroup: dra.acme.io}\n": ""},
    "v1alpha3": {
        'device.driver == "acme.io/gpu"': 'device.driver == "acme.io"',
        "  nodeName: worker-1\n": "  nodeName: worker-1\n  driver: acme.io\n",
    },
    "v1beta1": {},
}
"""What is left to mend in each, and the mend, as it is told (tests/unit/cli/old_manifests)."""


@pytest.fixture(scope="module", autouse=True)
def namespaces(control_plane: ControlPlane) -> Iterator[None]:
    client = control_plane.client()
    for name in NAMESPACES:
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield
    for name in NAMESPACES:
        client.delete(f"/api/v1/namespaces/{name}")


def applied(control_plane: ControlPlane, text: str) -> int:
    """Return how many objects the API server would keep. Raises CommandFailed, as where a field is unknown."""
    words = ("apply", "--dry-run=server", "--validate=strict", "-o", "name", "-f", "-")
    return len(control_plane.kubectl(*words, input=text).split())


@pytest.mark.parametrize(("form", "mends"), FORMS.items(), ids=FORMS)
def test_a_converted_walkthrough_is_taken_once_what_is_left_is_mended(
    control_plane: ControlPlane, tmp_path: Path, form: str, mends: dict[str, str]
) -> None:
    path = tmp_path / "old.yaml"
    path.write_text(old := (OLD / f"{form}.yaml").read_text())

    ended = subprocess.run([COMMAND, "convert", "--in-place", str(path)], capture_output=True, text=True, check=False)

    assert ended.returncode == (4 if mends else 0), ended.stderr
    with pytest.raises(CommandFailed):
        applied(control_plane, old)
    text = path.read_text()
    if mends:
        with pytest.raises(CommandFailed):
            applied(control_plane, text)
    for left, mended in mends.items():
        assert text.count(left) == 1
        text = text.replace(left, mended)
    assert applied(control_plane, text) == text.count("apiVersion: ")
