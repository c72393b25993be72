"""The compilation of intents and a profile to claim specs."""
