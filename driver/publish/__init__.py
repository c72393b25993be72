"""What the driver publishes, and keeps true: slices, health, status of devices."""
