"""The rules that allow or reject a device for a request; one KEP per file."""
