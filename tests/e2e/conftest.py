"""One real control plane for all end-to-end tests of a run, and a fresh namespace for each.

They take minutes and need Go, so they run only when asked for: `pytest -m e2e`, or a path below tests/e2e. The
environment variable K8S chooses the minor version of Kubernetes.
"""

import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane import ControlPlane, building
from tests.controlplane.namespaces import Namespace
from tests.e2e import barriers, fixtures
from tests.e2e.barriers import Barrier
from tests.e2e.musters import Muster

HERE = Path(__file__).parent
SECONDS_PER_TEST = 240
LINES_OF_LOG = 40
LONGEST_LINE = 400

# What a version needs so that the same tests hold on it; nothing on 1.37, whose defaults are what we test.
OPTIONS: dict[str, dict[str, Any]] = {
    "1.36": {
        "feature_gates": {"DRADeviceTaintRules": True},
        "runtime_config": {"resource.k8s.io/v1beta1": True, "resource.k8s.io/v1beta2": True},
    },
    **{
        older: {"runtime_config": {"resource.k8s.io/v1beta1": True, "resource.k8s.io/v1beta2": True}}
        for older in building.ON_DEMAND
    },
}

numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what stands here as e2e, and leave it out unless somebody asked for it."""
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
        # The first test would otherwise pay for the build of the control plane.
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS_PER_TEST, func_only=True))
        for since in item.iter_markers("since"):
            _skip_before(item, *since.args)
    if not _asked_for(config):
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]


def _skip_before(item: pytest.Item, version: str, why: str) -> None:
    """Skip a test on a Kubernetes that is older than what it is about. why: what is not there, as a sentence."""
    minors = [int(one.partition(".")[2]) for one in (os.environ.get("K8S") or building.DEFAULT_VERSION, version)]
    if minors[0] < minors[1]:
        item.add_marker(pytest.mark.skip(reason=f"before Kubernetes {version} {why}"))


def _asked_for(config: pytest.Config) -> bool:
    if "e2e" in (config.option.markexpr or ""):
        return True
    paths = (Path(config.invocation_params.dir, argument.split("::")[0]) for argument in config.invocation_params.args)
    return any(path.exists() and path.resolve().is_relative_to(HERE) for path in paths)


@pytest.fixture(scope="session")
def kubernetes() -> str:
    """The minor version of Kubernetes under test."""
    return os.environ.get("K8S") or building.DEFAULT_VERSION


@pytest.fixture(scope="session")
def options(kubernetes: str) -> dict[str, Any]:
    """What a control plane of this version needs so that the same tests hold on it."""
    return OPTIONS.get(kubernetes, {})


@pytest.fixture(scope="session")
def control_plane(kubernetes: str, options: dict[str, Any], request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane without Muster, shared by all tests of the run."""
    _build(kubernetes, request.config)
    with ControlPlane(kubernetes, **options) as started:
        yield started


@pytest.fixture(scope="module", params=building.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each version of Kubernetes that is built, for tests that start no cluster; K8S chooses nothing."""
    _build(request.param, request.config)
    return str(request.param)


def _build(version: str, config: pytest.Config) -> None:
    capture = config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    # A first build takes minutes: whoever waits has to see that it moves.
    with capture.global_and_fixture_disabled():
        building.build(version)


@pytest.fixture(scope="module")
def hardware() -> None:
    """No nodes: a module that wants some has a fixture of this name, from `fixtures.hardware`."""


muster = fixtures.muster()


@pytest.fixture(scope="module")
def rules(kubernetes: str) -> str:
    """Where DeviceTaintRules are; what asks for it is skipped where there are none."""
    path = barriers.rules_path(kubernetes)
    if path is None:
        pytest.skip(f"Kubernetes {kubernetes} serves no DeviceTaintRules in v1beta2 or v1")
    return path


@pytest.fixture(scope="module")
def barrier(control_plane: ControlPlane, kubernetes: str) -> Iterator[Barrier]:
    """What tells when kube-scheduler has seen all that a test wrote."""
    with barriers.barrier(control_plane.client(), rules=barriers.rules_path(kubernetes)) as barrier:
        yield barrier


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[Namespace]:
    """A fresh namespace, seen by the admin; afterwards its pods and claims are gone, and it is soon."""
    client = control_plane.client()
    fresh = Namespace(name=f"test-{next(numbers)}", client=client)
    client.create("/api/v1/namespaces", {"metadata": {"name": fresh.name}})
    yield fresh
    fresh.empty()
    client.delete(f"/api/v1/namespaces/{fresh.name}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what each program logged last under a test that failed."""
    report = yield
    started = getattr(item, "funcargs", {}).get("control_plane")
    if report.failed and isinstance(started, ControlPlane):
        for program, text in started.logs_tail(LINES_OF_LOG).items():
            lines = "\n".join(line[:LONGEST_LINE] for line in text.splitlines())
            report.sections.append((f"{program}: last lines of its log", lines))
    for muster in {id(one): one for one in _musters(item)}.values() if report.failed else ():
        report.sections.append(("muster: last lines of its logs", "\n".join(muster.logs.splitlines()[-LINES_OF_LOG:])))
    return report


def _musters(item: pytest.Item) -> Iterator[Muster]:
    """Yield the installations that a test has had, by itself, in a lab, or in the place of containers."""
    for value in getattr(item, "funcargs", {}).values():
        yield from getattr(value, "musters", ())
        found = getattr(value, "muster", value)
        if isinstance(found, Muster):
            yield found
