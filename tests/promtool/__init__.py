"""promtool, which plays Prometheus' alerts on numbers that a test gives."""
