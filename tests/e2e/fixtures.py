"""Fixtures that differ between modules by what they are given: a module assigns what one of these returns to its name.

    hardware = fixtures.hardware(fleet.demo_fleet([4]))
    muster = fixtures.muster(fence=[fleet.DRIVER])

A module without them has those of `conftest`: no nodes, and one Muster with the settings that all tests have.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import pytest

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.oracles import Oracle
from tests.controlplane.processes import FreePorts
from tests.e2e import barriers, herds, labs, musters
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster

Fixture = Callable[..., Any]
"""What pytest takes for a fixture, by the name that a module gives it."""


def hardware(manifests: Iterable[Manifest]) -> Fixture:
    """Return a fixture with nodes, slices and classes, for all tests of a module."""
    wanted = list(manifests)

    @pytest.fixture(scope="module")
    def hardware(control_plane: ControlPlane) -> Iterator[None]:
        with fleet.installed(control_plane.client(), wanted):
            yield

    return hardware


def muster(*kinds: tuple[str, str], scope: Literal["module", "function"] = "module", **settings: Any) -> Fixture:
    """Return a fixture with a Muster that runs beside the module's hardware.

    kinds: apiVersion and kind of custom resources that the API server knows meanwhile. settings: as Muster has them.
    """

    @pytest.fixture(scope=scope)
    def muster(control_plane: ControlPlane, hardware: None) -> Iterator[Muster]:
        with herds.installed(control_plane.client(), *kinds), musters.running(control_plane, **settings) as started:
            yield started

    return muster


def own_control_plane(**more: Any) -> Fixture:
    """Return a fixture with a cluster for the module alone, where nobody else has left anything.

    more: options of the control plane, beside those that its version needs.
    """

    @pytest.fixture(scope="module")
    def control_plane(kubernetes: str, options: dict[str, Any]) -> Iterator[ControlPlane]:
        with ControlPlane(kubernetes, **options, **more) as started:
            yield started

    return control_plane


def oracle(kind: type[Oracle]) -> Fixture:
    """Return a fixture with a part of Kubernetes that answers questions, in each version."""

    @pytest.fixture(scope="module")
    def oracle(version: str) -> Iterator[Oracle]:
        with kind.of(version) as started:
            yield started

    return oracle


def free_port(*, scope: Literal["module", "function"] = "function") -> Fixture:
    """Return a fixture with a port of this machine that nobody used when it was picked."""

    @pytest.fixture(scope=scope)
    def port() -> int:
        with FreePorts() as ports:
            return ports.pick()

    return port


def lab_in_racks(drivers: Mapping[str, str]) -> Fixture:
    """Return a fixture with a team, two nodes in rack r1 and one in r2, with two devices each.

    drivers: each test runs once for each key, with the devices of its driver.
    """

    @pytest.fixture(params=drivers)
    def lab(
        control_plane: ControlPlane, muster: Muster, namespace: Namespace, request: pytest.FixtureRequest
    ) -> Iterator[Lab]:
        if request.param == "Allocate" and control_plane.version in barriers.WITHOUT_RULES:
            pytest.skip(f"Kubernetes {control_plane.version} has no DeviceTaintRules in v1beta2 or v1 for a fence")
        driver = drivers[request.param]
        with Lab(control_plane=control_plane, muster=muster, namespace=namespace, driver=driver) as lab:
            lab.device_class()
            lab.meter("gpus", count={})
            for node, rack in (("one", "r1"), ("two", "r1"), ("three", "r2")):
                labs.put_into_rack(lab, lab.node(node, labs.plain(2)), rack)
            lab.found()
            yield lab

    return lab
