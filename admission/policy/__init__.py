"""Pure decisions: who belongs together, who may enter, who may start; each an ordered chain of checks with a reason."""
