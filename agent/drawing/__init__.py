"""The machine as a picture, for terminals and browsers: values in, text out.

A `picture.Picture` (who holds what) becomes nested parts, these get places, and the places become SVG or
characters.
"""
