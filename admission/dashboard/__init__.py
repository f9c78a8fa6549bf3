"""Pages for people: what waits and why, who holds what, and what the books say. They only ever read.

`server` serves them; `access` decides what each visitor sees; `scenes` orders what is seen of the cluster, and `pages`
shows it.
"""
