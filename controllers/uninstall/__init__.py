"""The process that unlocks pods before an uninstall."""
