"""The rules that decide whether a device may serve a request; one KEP per file."""
