"""Driver profiles as data: one YAML file per DRA driver; `webhook.profile` says what they hold."""
