"""The devices that a node sees, from ResourceSlices, pools, taints, counters."""
