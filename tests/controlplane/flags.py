"""The command line of each program: only what differs from Kubernetes' defaults, each with its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane import kubelets, users

STAGES = Path(__file__).with_name("stages")

# Kubernetes' default client limits let the scheduler bind 13 DRA pods a second and the controller manager make 10
# claims a second; tests would measure those limits and nothing else.
RAISED_LIMITS = ("--kube-api-qps=2000", "--kube-api-burst=4000")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where one control plane keeps its files and listens."""

    folder: Path
    etcd_port: int
    peer_port: int
    apiserver_port: int
    kubelet_port: int

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.apiserver_port}"

    @property
    def serving_certificate(self) -> Path:
        """What kube-apiserver signs for itself at its first start: its certificate, then the CA that signed it."""
        return self.folder / "certificates" / "apiserver.crt"

    @property
    def authority(self) -> Path:
        return self.folder / "certificates" / "authority.crt"

    @property
    def signing_key(self) -> Path:
        return self.folder / "service-accounts.key"

    @property
    def tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def kubeconfig(self, user: str) -> Path:
        return self.folder / "kubeconfigs" / user.replace(":", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test may want different."""

    feature_gates: Mapping[str, bool]
    runtime_config: Mapping[str, bool]
    raised_limits: bool
    durable: bool
    kubelets: bool

    def gates(self) -> tuple[str, ...]:
        return _pairs("--feature-gates", self.feature_gates)


def etcd(layout: Layout, options: Options) -> list[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in (layout.etcd_port, layout.peer_port))
    return [
        "--name=muster",
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=muster={peer}",
        "--log-level=warn",
        # Half of a test's time would be spent waiting for the disk; killing programs loses nothing even so.
        *([] if options.durable else ["--unsafe-no-fsync"]),
    ]


def kube_apiserver(layout: Layout, options: Options) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.etcd_port}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.apiserver_port}",
        f"--cert-dir={layout.serving_certificate.parent}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={layout.signing_key}",
        f"--service-account-signing-key-file={layout.signing_key}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC,Node",
        "--anonymous-auth=false",
        "--service-cluster-ip-range=10.0.0.0/24",
        # Nothing runs in these pods that could use a token, and each test's first pod would wait for its account.
        "--disable-admission-plugins=ServiceAccount",
        # Nobody looks for the API server inside the cluster, and a loopback address may not stand in an Endpoints.
        "--endpoint-reconciler-type=none",
        *(["--max-requests-inflight=3000", "--max-mutating-requests-inflight=1000"] if options.raised_limits else []),
        *options.gates(),
        *_pairs("--runtime-config", options.runtime_config),
    ]


def kube_scheduler(layout: Layout, options: Options) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig(users.SCHEDULER)}",
        "--leader-elect=false",
        "--secure-port=0",
        *(RAISED_LIMITS if options.raised_limits else ()),
        *options.gates(),
    ]


def kube_controller_manager(layout: Layout, options: Options) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig(users.CONTROLLER_MANAGER)}",
        # Each controller acts as its own service account with its bootstrap role, as on every real cluster; its one
        # user alone may not even make a ResourceClaim.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={layout.signing_key}",
        f"--root-ca-file={layout.authority}",
        "--leader-elect=false",
        "--secure-port=0",
        *(RAISED_LIMITS if options.raised_limits else ()),
        *options.gates(),
    ]


def kwok(layout: Layout, options: Options) -> list[str]:
    stages = [f"--config={stage}" for stage in sorted(STAGES.glob("*.yaml"))]
    return [
        f"--kubeconfig={layout.kubeconfig(users.KWOK)}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        *(kubelets.flags(layout.kubelet_port) if options.kubelets else ()),
        *stages,
    ]


def _pairs(flag: str, values: Mapping[str, bool]) -> tuple[str, ...]:
    if not values:
        return ()
    return (f"{flag}=" + ",".join(f"{name}={str(value).lower()}" for name, value in sorted(values.items())),)
