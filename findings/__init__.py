"""What is said about an object: code, severity, place, message and fix. Pure."""
