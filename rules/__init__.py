"""Rules about DRA objects and pods with claims: the fault, its cause and a fix.

`rules.engine.engine.validate` is the one entrance, for the webhook and for `drawbridge check`;
`rules.engine.registry.RULES` is the one table, of which the docs and the policies inside the API
server are generated.
"""
