"""The answers of the subcommands, as values. Pure."""
