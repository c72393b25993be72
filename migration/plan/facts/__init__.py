"""Further facts that a plan depends on: vendors, releases, work that cannot move, quotas, other managers."""
