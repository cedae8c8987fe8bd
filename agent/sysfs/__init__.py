"""The machine as sysfs shows it: reading, discovery, recording, hotplug."""
