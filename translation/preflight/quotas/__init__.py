"""The requests that ResourceQuotas on device keys count, and those left uncounted. Pure."""
