"""Types and members of vectors and matrices. Private."""
