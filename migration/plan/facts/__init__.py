"""What else a plan depends on: vendors, releases, work that cannot move, quotas, other managers."""
