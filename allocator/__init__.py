"""The allocation library: which devices a set of claims gets on a node, and why not others."""
