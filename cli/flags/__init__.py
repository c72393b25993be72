"""The flags that commands share, and their types."""
