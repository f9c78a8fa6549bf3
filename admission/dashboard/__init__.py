"""Shows queues, gangs, devices or the ledger to people, read-only.

`server` serves the pages; `auth.rbac` decides what each visitor may see; `view_model` orders the cluster's objects, and
`pages` renders them.
"""

__all__ = [
    "auth",
    "gang_listings",
    "jinja_environment",
    "ledger_queries",
    "request_context",
    "server",
    "tls",
    "view_model",
]
