"""Kubernetes as values: API types, quantities, CEL, object files, client and informer.

Knows nothing of what this product decides; everything above imports it, it imports nothing of ours.
"""
