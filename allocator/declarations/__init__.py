"""Declarations of groups: which pods belong together, in the words of which scheduler, and how many are needed."""
