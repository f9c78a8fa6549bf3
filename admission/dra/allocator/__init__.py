"""One pod on one node, allocated as kube-scheduler does it."""
