"""The inputs of subcommands: files, a live cluster, profiles, options."""
