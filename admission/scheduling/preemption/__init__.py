"""The gangs that are evicted so that another one can start."""
