"""Simulated placement of pods and claims, and the reasons why pods are pending."""
