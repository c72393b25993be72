"""The API types that we read, field for field as upstream names them; reading only."""
