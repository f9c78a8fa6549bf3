"""What a pod or workload gets at admission, or is refused for."""
