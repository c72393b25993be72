"""Further facts that a plan depends on: device plugins, work that cannot move, quotas, other managers."""
