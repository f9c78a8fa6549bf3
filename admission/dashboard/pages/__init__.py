"""Handles the requests for pages: each reads its query, checks rights, fills a template."""

__all__ = ["devices", "gangs", "ledger", "login", "overview", "queues", "time_travel"]
