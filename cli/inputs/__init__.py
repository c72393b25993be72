"""What subcommands read: files, a live cluster, profiles, options."""
