"""What ResourceQuotas on device keys count, and what they leave uncounted. Pure."""
