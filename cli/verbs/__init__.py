"""The commands, each a folder."""
