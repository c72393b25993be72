"""The translation of a pod, from its keys to the patch."""
