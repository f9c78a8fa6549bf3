"""One Muster and one team for all tests of a module; every kind is known but one, which comes while Muster runs."""

import itertools
from collections.abc import Iterator

import pytest

from tests.controlplane import ControlPlane
from tests.e2e import herds, musters
from tests.e2e.herds import Herd
from tests.e2e.kinds.parents import EARLY, RAY
from tests.e2e.musters import Muster

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane) -> Iterator[Muster]:
    client = control_plane.client()
    with herds.installed(client, *EARLY), musters.running(control_plane) as muster, herds.installed(client, RAY):
        yield muster


@pytest.fixture(scope="module")
def herd(control_plane: ControlPlane, muster: Muster) -> Iterator[Herd]:
    with herds.of(control_plane, muster, f"herd{next(numbers)}", nodes=4, devices=16) as herd:
        yield herd
