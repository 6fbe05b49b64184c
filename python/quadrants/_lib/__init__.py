"""Native side of the package."""
