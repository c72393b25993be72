"""Admission: pods written for device plugins come in, pods of Dynamic Resource Allocation go out.

The pure part reads a pod and answers with values; `handlers` and the controllers are the thin edges
around it; `__main__` is the only place that knows all of it.
"""
