"""The search for waves."""
