"""Objects, views, findings and versions: the values of all answers."""
