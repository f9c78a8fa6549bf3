"""Who picks the devices of a gang: Muster or kube-scheduler."""
