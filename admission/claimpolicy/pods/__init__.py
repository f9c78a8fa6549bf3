"""What the claims of a pod get at admission, or are refused for."""
