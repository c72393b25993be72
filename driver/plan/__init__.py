"""Decisions of the node driver, as functions of values: no clock, file, socket or event loop."""
