"""The demo: two teams on a real Kubernetes, told step by step (`make demo`, `python -m tests.demo`).

`story` tells it, on a `stage` (the control plane of tests.controlplane, or the cluster of KUBECONFIG); `offline` tells
the same through `muster simulate`. The end-to-end test tests/e2e/test_story.py runs `story` with assertions.
"""
