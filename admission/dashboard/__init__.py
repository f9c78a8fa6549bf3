"""Shows queues, gangs, devices or the books to people; it only reads.

`server` serves them; `rbac` decides what each visitor sees; `view_model` orders what is seen of the cluster, and
`pages` shows it.
"""

__all__ = ["auth", "jinja_environment", "ledger_queries", "request_context", "server", "tls", "view_model"]
