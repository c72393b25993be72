"""Driver profiles as data: one YAML file per DRA driver; see `translation.profiles.profile` for the fields."""
