"""The gate to systemd's manager over D-Bus: unit properties, transient units, jobs.

Interface: https://www.freedesktop.org/software/systemd/man/org.freedesktop.systemd1.html
"""
