"""The configuration by which the API server calls Muster's webhook."""

__all__ = [
    "access_review",
    "client_config",
    "dry_run_probe",
    "gate_policy",
    "match_conditions",
    "pod_policy",
    "registered_paths",
    "registration",
]
