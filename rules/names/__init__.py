"""Names in DRA objects, in the formats that the API server requires."""
