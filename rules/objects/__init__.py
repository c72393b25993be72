"""Rules about one object each, by kind."""
