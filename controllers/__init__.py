"""The controllers: templates, compatibility policies, audit, certificates. One replica leads."""
