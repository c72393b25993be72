"""The shell functions that the scripts of a plan share. Pure."""
