"""The schemas of Muster's own objects: the single definition, in Python, from which `config/crds` is written.

`crds.all_definitions()` returns the five CustomResourceDefinitions; `tests/architecture/test_crds.py` compares them
with the YAML, and rewrites the YAML when `MUSTER_REGENERATE=1` is set. `known_fields` has the names of their fields,
and of those of Kubernetes' kinds.
"""

__all__ = ["crds", "fields", "known_fields"]
