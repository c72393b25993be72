"""Values of the sidecar: its protocol, settings, rejections and reservations."""
