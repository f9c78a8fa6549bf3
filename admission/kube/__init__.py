"""Adapters to the API server of Kubernetes, in the only package that imports kubernetes-asyncio.

`client` sends requests and translates failures; `cache` mirrors the cluster's objects in a store; `writers` implement
the ports of `admission.ports`; `leader_election` elects the leader; `webhook_config` and `crd_installer` set the
cluster up. JSON stays inside: the package returns values of `admission.api`.
"""

__all__ = [
    "cache",
    "client",
    "config_map_store",
    "crd_installer",
    "fence_controller",
    "leader_election",
    "listing_reader",
    "secret_store",
    "server_version",
    "webhook_config",
    "writers",
]
