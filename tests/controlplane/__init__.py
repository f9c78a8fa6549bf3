"""A real Kubernetes control plane on this machine, for the end-to-end tests, the benchmarks and the demo.

etcd, kube-apiserver, kube-scheduler and kube-controller-manager are built from Kubernetes' own source (module
`building`) and run as plain processes (module `running`); KWOK plays the kubelets of nodes that module `fleet` writes.
Nothing here knows Muster: what is seen on this control plane is what Kubernetes does.
"""

from tests.controlplane.building import BuildFailed, ToolMissing, build
from tests.controlplane.clients import ApiError, Client
from tests.controlplane.running import ControlPlane, StartFailed

__all__ = ["ApiError", "BuildFailed", "Client", "ControlPlane", "StartFailed", "ToolMissing", "build"]
