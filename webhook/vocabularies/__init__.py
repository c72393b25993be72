"""Legacy vocabularies, one per file, and the arbiter that says who owns a pod.

A vocabulary is a value: its keys, its annotations, and a pure function from a `LegacyPod` to a
`Translation`. They are strangers to each other; only the arbiter knows them all.
"""
