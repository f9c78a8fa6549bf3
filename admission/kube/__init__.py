"""Kubernetes, as Muster reaches it: the only package that names kubernetes-asyncio.

`connection` sends requests and translates failures; `reflector` keeps `store` true to the cluster; `pods` and `status`
are the real adapters of `admission.ports`; `leader_election` elects the leader; `registration` and `crd_installer` set
the cluster up. JSON stays inside: what goes out are values of `admission.api`.
"""

__all__ = [
    "cache",
    "client",
    "crd_installer",
    "fence_controller",
    "leader_election",
    "secret_store",
    "server_version",
    "webhook_config",
    "writers",
]
