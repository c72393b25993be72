"""Admission reviews to answers: pods, workloads and DRA objects. Pure; webhook and command line share it."""
