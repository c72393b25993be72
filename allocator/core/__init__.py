"""Allocation as functions from values to values; knows no clock, file, log or network."""
