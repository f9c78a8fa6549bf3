"""The schemas of Muster's own objects: the single definition, in Python, from which `config/crds` is written.

`crds.all_definitions()` returns the four CustomResourceDefinitions. Nothing here runs in an installed Muster;
`tests/architecture/test_crds.py` compares it with the YAML, and rewrites the YAML when `MUSTER_REGENERATE=1` is set.
"""
