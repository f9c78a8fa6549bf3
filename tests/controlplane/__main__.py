"""`python -m tests.controlplane`: build the programs, or run a control plane to try things by hand."""

import argparse
import contextlib
import shlex
import signal
import sys
import threading

from tests.controlplane import building, fleet
from tests.controlplane.running import ControlPlane, StartFailed


def main() -> int:
    words = _parser().parse_args()
    # Both end `up` the same way; and a shell that starts us in the background has SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        return _build(words.k8s) if words.command == "build" else _up(words.k8s, demo_fleet=words.fleet)
    except (building.ToolMissing, building.BuildFailed, StartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    version = argparse.ArgumentParser(add_help=False)
    version.add_argument(
        "--k8s",
        choices=(*building.VERSIONS, *building.ON_DEMAND),
        default=building.DEFAULT_VERSION,
        help="the minor version of Kubernetes (default: %(default)s)",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", parents=[version], help="build the programs into the cache and print their paths")
    up = commands.add_parser(
        "up", parents=[version], help="start a control plane, print its KUBECONFIG, run until Ctrl-C"
    )
    up.add_argument("--fleet", action="store_true", help="add the demo's six fake GPU nodes")
    return parser


def _build(version: str) -> int:
    for program, command in building.build(version).commands.items():
        print(f"{program}: {shlex.join(command)}")
    print(f"helm: {building.helm()}")
    print(f"karpenter: {building.karpenter()}")
    return 0


def _up(version: str, *, demo_fleet: bool) -> int:
    with ControlPlane(version) as control_plane:
        if demo_fleet:
            fleet.install(control_plane.client(), fleet.demo_fleet())
        print(f"Kubernetes {version} listens at {control_plane.server}; Ctrl-C ends it and removes all it wrote.")
        print(f"export KUBECONFIG={control_plane.kubeconfig}")
        print(f"alias kubectl={shlex.quote(shlex.join(control_plane.kubectl_command))}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
