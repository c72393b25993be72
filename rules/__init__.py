"""Rules about objects of DRA and pods with claims: what is wrong, why, and what would be right.

`rules.engine.judge` is the one entrance, for the webhook and for `drawbridge check`;
`rules.engine.registry.RULES` is the one table, of which the docs and the policies inside the API
server are generated.
"""
