"""A trace of jobs played in virtual time."""
