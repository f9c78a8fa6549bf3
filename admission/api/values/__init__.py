"""Values that Kubernetes JSON is made of: quantities, durations, names, selectors, JSON patches."""
