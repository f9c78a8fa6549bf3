"""promtool, Prometheus and amtool, which play Prometheus' alerts, and Alertmanager's routes, on what a test gives."""
