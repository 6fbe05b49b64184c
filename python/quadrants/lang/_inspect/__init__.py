"""What people look at: dumps, syntax, sources, advice on mistakes. Private."""
