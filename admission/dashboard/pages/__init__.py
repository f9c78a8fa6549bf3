"""The pages: each handler reads what is asked, asks for the rights it takes, and fills a template."""

__all__ = ["devices", "gangs", "ledger", "login", "overview", "queues", "time_travel"]
