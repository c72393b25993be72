"""DeviceTranslationProfiles: those in force, the versions kept, and their status."""
