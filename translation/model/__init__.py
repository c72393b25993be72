"""Values that all of translation shares: intents, keys, choices, amounts and bounds."""
