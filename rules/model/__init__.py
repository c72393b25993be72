"""Values that rules share: names, formats, requests and published names."""
