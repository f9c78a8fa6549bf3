"""The kinds of those whom the chart can ask, as they publish them: cert-manager, CloudNativePG, Prometheus operator.

Nobody runs them here: the API server knows what they take, and nothing comes of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.controlplane import ControlPlane, modules

KINDS = (
    (
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        ("deploy/crds/cert-manager.io_certificates.yaml", "deploy/crds/cert-manager.io_issuers.yaml"),
    ),
    (
        "github.com/cloudnative-pg/cloudnative-pg",
        "v1.28.0",
        ("config/crd/bases/postgresql.cnpg.io_clusters.yaml",),
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        (
            "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
            "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        ),
    ),
)
"""Modules whose sources have CRDs: which, and where."""


@contextmanager
def known(control_plane: ControlPlane) -> Iterator[None]:
    """Have the API server know them for a while."""
    files = [modules.source(module, version) / path for module, version, paths in KINDS for path in paths]
    words = [word for file in files for word in ("-f", str(file))]
    control_plane.kubectl("apply", "--server-side", *words)
    try:
        control_plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", *words)
        yield
    finally:
        control_plane.kubectl("delete", "--wait=false", *words)
