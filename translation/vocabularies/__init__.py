"""Legacy vocabularies, one per module or package.

A vocabulary is a value: its keys, its annotations, and a pure function from a `LegacyPod` to a
`Translation`. Vocabularies do not depend on each other; `translation.reading.arbiter` lists them all.
"""
