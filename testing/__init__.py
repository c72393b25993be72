"""Builders, fakes and generators that tests, e2e and bench share."""
