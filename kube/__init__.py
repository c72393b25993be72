"""Kubernetes as values and as a client: API types, quantities, CEL, object files, informers.

Independent of this product: every other package may import it, and it imports none of them.
"""
