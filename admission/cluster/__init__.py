"""Kubernetes, as Muster reaches it: the only package that names kubernetes-asyncio.

`connecting` sends requests and translates failures; `watching` keeps `store` true to the cluster; `patching` and
`reporting` are the real adapters of `admission.ports`; `leases` elects the leader; `registering` and `installing` set
the cluster up. JSON stays inside: what goes out are values of `admission.api`.
"""
