"""The quotas of legacy device keys, and the lines that count claims in their place. Pure."""
