"""Fields and ndarrays: declaration, access, conversion. Private."""
