"""Admission cycles over manifests, offline."""
