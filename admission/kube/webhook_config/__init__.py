"""The webhook configurations in the cluster."""

__all__ = ["access_review", "client_config", "dry_run_probe", "registration"]
