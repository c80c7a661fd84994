"""What everything else stands on: settings, errors, the registry, random streams, files, devices and ranks."""
