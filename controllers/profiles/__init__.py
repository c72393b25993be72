"""DeviceTranslationProfiles: which are in force, which versions are kept, and their status."""
