"""The objects that the driver publishes and keeps current: slices, health, status of devices."""
