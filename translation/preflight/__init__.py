"""Checks of a pod with device keys before it is translated."""
