"""The observer: explains in events why pods wait for devices; needs neither webhook nor controllers."""
