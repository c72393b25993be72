"""Simulated placement of pods and claims, and the reasons that pods are pending."""
