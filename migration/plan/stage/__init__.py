"""The pods of a plan on their nodes at one moment: their places, with and without devices. Pure."""
