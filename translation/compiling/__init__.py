"""From intents and a profile to claim specs."""
