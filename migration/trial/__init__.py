"""Checks that Drawbridge would translate the pods of a wave: its webhook, and pods that are tried as dry runs."""
