"""The objects of a trial of a plan on simulated nodes."""
