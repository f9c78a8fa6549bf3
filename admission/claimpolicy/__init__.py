"""ClaimPolicies: what claims get when their author is silent, and what they may not ask."""
