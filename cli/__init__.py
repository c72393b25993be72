"""The `drawbridge` command: one file per subcommand, rendering apart from deciding."""
